package trial

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"github.com/lendcli/lend/protocol"
)

var errNoEnd = errors.New("the operation has no end")

// caller is the caller's side of one run stream.
type caller struct {
	frames         *protocol.Reader
	w              *protocol.Writer
	stdin          io.Reader
	stdout, stderr io.Writer
	taken          protocol.Ack // of the outputs
	closed         [3]bool      // by Stream: nobody reads it any more
	sending        sync.Once

	mu     sync.Mutex // guards window and ended
	window *protocol.Window
	room   *sync.Cond // on mu
	ended  bool
}

// Run sends s over c and follows it to its end. Where s.Stdin is set, stdin is sent;
// it is not read after the end, except by a Read that is under way. If one fails, nothing
// more is sent, and no end of the input either: the caller cancels what waits for it. An output that
// cannot be written to is closed for the command. The error is a *protocol.Refusal if
// nothing ran; any other means that the end is not known. The caller closes c.
func Run(c net.Conn, s *protocol.Start, stdin io.Reader, stdout, stderr io.Writer) (protocol.Exit, error) {
	l := &caller{
		frames: protocol.NewReader(c, protocol.Caller), w: protocol.NewWriter(c),
		stdin: stdin, stdout: stdout, stderr: stderr, window: protocol.NewWindow(0),
	}
	l.room = sync.NewCond(&l.mu)
	defer l.end()
	if err := l.w.WriteFrame(s); err != nil {
		return protocol.Exit{}, fmt.Errorf("try: %w", err)
	}
	for {
		f, err := l.frames.Read()
		if err != nil {
			return protocol.Exit{}, errors.Join(errNoEnd, err)
		}
		switch f := f.(type) {
		case *protocol.Refused:
			return protocol.Exit{}, f.Err()
		case *protocol.Exit:
			return *f, l.w.WriteFrame(&protocol.ExitAck{})
		}
		if err := l.take(f, s.Stdin); err != nil {
			return protocol.Exit{}, errors.Join(errNoEnd, err)
		}
	}
}

func (l *caller) take(f protocol.Frame, stdin bool) error {
	switch f := f.(type) {
	case *protocol.Accepted:
		if stdin {
			l.sending.Do(func() { go l.send() }) // ends with the pipe, or with stdin
		}
	case *protocol.Ack:
		l.mu.Lock()
		defer l.mu.Unlock()
		defer l.room.Broadcast()
		return l.window.Ack(f.Stdin)
	case *protocol.StdinClosed:
		l.end()
	case *protocol.Data:
		return l.output(f)
	}
	return nil
}

func (l *caller) output(f *protocol.Data) error {
	to, count := l.stdout, &l.taken.Stdout
	if f.Stream == protocol.Stderr {
		to, count = l.stderr, &l.taken.Stderr
	}
	*count += uint64(len(f.Payload))
	if l.closed[f.Stream] {
		return nil // on its way before the gateway knew
	}
	if _, err := to.Write(f.Payload); err != nil {
		l.closed[f.Stream] = true
		return l.w.WriteFrame(&protocol.OutputClosed{Stream: f.Stream})
	}
	return l.w.WriteFrame(&l.taken)
}

func (l *caller) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	l.room.Broadcast()
}

// reserve waits for room in the window; 0 means that nobody takes more.
func (l *caller) reserve() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	for !l.ended && l.window.Room() == 0 {
		l.room.Wait()
	}
	if l.ended {
		return 0
	}
	return min(l.window.Room(), protocol.MaxData)
}

// send copies the input. An error of the pipe means that nobody takes more.
func (l *caller) send() {
	buf := make([]byte, protocol.DataHeaderMax+protocol.MaxData)
	var offset uint64
	for {
		room := l.reserve()
		if room == 0 {
			return
		}
		n, err := l.stdin.Read(buf[protocol.DataHeaderMax:][:room])
		if n > 0 {
			l.mu.Lock()
			l.window.Add(n)
			l.mu.Unlock()
			if l.w.WriteData(buf, 0, offset, n) != nil {
				return
			}
			offset += uint64(n)
		}
		if errors.Is(err, io.EOF) {
			_ = l.w.WriteFrame(&protocol.StdinEnd{Total: offset}) // the end says what was taken
		}
		if err != nil {
			return
		}
	}
}
