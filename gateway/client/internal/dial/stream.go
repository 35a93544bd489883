package dial

import (
	"errors"
	"io"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	core "github.com/libp2p/go-libp2p/core/protocol"
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
		return s.Stream.Write(b)
	}
	s.said = true
	n, err := s.Stream.Write(append(s.hello[:len(s.hello):len(s.hello)], b...))
	return max(0, n-len(s.hello)), untaken(err)
}

// Read returns what follows the answer to the proposal. If that was another, the
// error is ErrNotGateway.
func (s *Stream) Read(b []byte) (int, error) {
	if err := s.hear(); err != nil {
		return 0, err
	}
	return s.Stream.Read(b)
}

// hear reads the answer: the same bytes, if the peer speaks the protocol.
func (s *Stream) hear() error {
	if s.heard {
		return s.bad
	}
	err := s.answer()
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
