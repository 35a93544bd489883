package operation

import (
	"time"

	"github.com/lendcli/lend/protocol"
)

// Replay answers s with the end of an operation of which nothing else is left:
// the outputs begin where they ended, so that the caller sees what is missing. It
// closes or resets the stream.
func Replay(s Session, exit protocol.Exit) error {
	_ = s.Stream.SetWriteDeadline(time.Now().Add(DefaultExitAck))
	err := s.Writer.WriteFrame(&protocol.Accepted{Attached: true, Stdin: exit.Stdin, Stdout: exit.Stdout, Stderr: exit.Stderr})
	if err == nil {
		err = s.Writer.WriteFrame(&exit)
	}
	s.Frames.Resume(exit.Stdin)
	deadline := time.Now().Add(DefaultExitAck)
	for err == nil {
		_ = s.Stream.SetReadDeadline(deadline)
		var f protocol.Frame
		if f, err = s.Frames.Read(); err != nil {
			break
		}
		if _, ok := f.(*protocol.ExitAck); ok {
			return s.Stream.Close()
		}
	}
	s.Reset(protocol.CodeInternal)
	return err
}
