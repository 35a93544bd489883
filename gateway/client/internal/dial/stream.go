package dial

import (
	"errors"
	"io"
	"sync/atomic"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	core "github.com/libp2p/go-libp2p/core/protocol"

	"github.com/lendcli/lend/protocol"
)

// Stream is a libp2p stream that negotiates its protocol by itself: what is
// proposed goes out with the first Write, and what comes back is checked by the
// first Read. One goroutine reads; writers take turns.
type Stream struct {
	network.Stream
	hello []byte
	said  bool  // hello was written
	heard bool  // the answer was read
	bad   error // it was wrong

	// why the gateway reset the stream, as a writer was told: whoever then resets it
	// here must not hide that from the reader.
	why atomic.Pointer[error]

	newFor   *Dialer     // the connection has answered nothing yet; else nil
	patience *time.Timer // with newFor: until the connection is given up
}

const multistream = "/multistream/1.0.0"

func hello(id core.ID) []byte {
	b := append([]byte{byte(len(multistream) + 1)}, multistream+"\n"...)
	return append(append(b, byte(len(id)+1)), string(id)+"\n"...)
}

// Write sends b, after the proposal if that was not sent yet.
func (s *Stream) Write(b []byte) (int, error) {
	if s.said {
		n, err := s.Stream.Write(b)
		return n, s.note(err)
	}
	s.said = true
	n, err := s.Stream.Write(append(s.hello[:len(s.hello):len(s.hello)], b...))
	return max(0, n-len(s.hello)), untaken(s.note(err))
}

// note keeps the code with which the gateway reset the stream.
func (s *Stream) note(err error) error {
	if _, ok := code(err); ok {
		s.why.CompareAndSwap(nil, &err)
	}
	return err
}

// noted returns what note has kept in place of an error that only says that the stream
// was reset here.
func (s *Stream) noted(err error) error {
	var reset *network.StreamError
	why := s.why.Load()
	if why != nil && errors.As(err, &reset) && !reset.Remote {
		return *why
	}
	return err
}

// code returns the code with which the gateway reset a stream. spec: CODE-3
func code(err error) (protocol.Code, bool) {
	var reset *network.StreamError
	if !errors.As(err, &reset) || !reset.Remote || reset.ErrorCode < protocol.ResetBase || reset.ErrorCode > protocol.ResetBase+0xffff {
		return 0, false
	}
	return protocol.Code(reset.ErrorCode - protocol.ResetBase), true
}

// Refused makes a *protocol.Refusal of an error that says that the gateway reset the
// stream with a code that only refuses: nothing ran because of the request. It is for
// errors from before the answer was read; others come back as they are. spec: CODE-4
func Refused(err error) error {
	if c, ok := code(err); ok && c.CanRefuse() && !c.CanEnd() {
		return &protocol.Refusal{Code: c, Cause: err}
	}
	return err
}

// Read returns what follows the answer to the proposal. If that was another, the
// error is ErrNotGateway.
func (s *Stream) Read(b []byte) (int, error) {
	if err := s.hear(); err != nil {
		return 0, err
	}
	n, err := s.Stream.Read(b)
	return n, s.noted(err)
}

// hear reads the answer: the same bytes, if the peer speaks the protocol.
func (s *Stream) hear() error {
	if s.heard {
		return s.bad
	}
	err := s.noted(s.answer())
	if s.newFor == nil {
		return err
	}
	s.patience.Stop()
	var reset *network.StreamError
	switch c := s.Conn(); {
	case err == nil:
		s.newFor.heard(c.RemotePeer(), c.ID())
	case errors.As(err, &reset), errors.Is(err, ErrNotGateway): // the stream alone: the connection may be well
	default:
		_ = c.Close() // half dead at best
	}
	return untaken(err)
}

// giveUp closes a connection that is silent, unless another stream was answered.
func (s *Stream) giveUp() {
	c := s.Conn()
	if s.newFor.answered(c.RemotePeer(), c.ID()) {
		return
	}
	_ = s.Stream.Reset()
	_ = c.Close()
}

// Reset ends both directions, and what waits for an answer.
func (s *Stream) Reset() error {
	if s.patience != nil {
		s.patience.Stop()
	}
	return s.Stream.Reset()
}

// answer reads the answer and sets heard and bad.
func (s *Stream) answer() error {
	got := make([]byte, len(s.hello))
	first := int(s.hello[0]) + 2 // one length more, which says what is to come
	if _, err := io.ReadFull(s.Stream, got[:first]); err != nil {
		var reset *network.StreamError
		if errors.As(err, &reset) && reset.Remote && reset.ErrorCode == network.StreamProtocolNegotiationFailed {
			return ErrNotGateway
		}
		return err
	}
	s.heard = true
	if string(got[:first]) != string(s.hello[:first]) {
		s.bad = ErrNotGateway
		return s.bad
	}
	if _, err := io.ReadFull(s.Stream, got[first:]); err != nil {
		s.bad = err
	} else if string(got) != string(s.hello) {
		s.bad = ErrNotGateway
	}
	return s.bad
}

// confirm negotiates at once.
func (s *Stream) confirm() error {
	if _, err := s.Write(nil); err != nil {
		return err
	}
	return s.hear()
}
