package door

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
)

// The muxer queues 64 frames of a connection whatever their size. Behind 4 MiB of one
// stream's output everything else would wait, so large writes take their turn while no
// more than this many bytes are queued; small ones never wait.
const (
	shortQueue = 128 << 10
	largeWrite = 16 << 10
	// turnTimeout is how long a write waits at most, until the muxer's own deadlines hold.
	turnTimeout = time.Second
)

// Of the muxer's frames.
const (
	muxHeader   = 12
	muxTypeAt   = 1
	muxTypeData = 0
)

// turns counts the data in a connection's queue.
type turns struct {
	queued  atomic.Int64 // what streams have written less what the connection has
	waiting atomic.Int32
	mu      sync.Mutex
	moved   chan struct{} // closed when something was written; guarded by mu
}

func newTurns() *turns { return &turns{moved: make(chan struct{})} }

// wait returns when the queue is short, when gone is closed, or late.
func (t *turns) wait(gone <-chan struct{}) {
	if t.queued.Load() < shortQueue {
		return
	}
	t.waiting.Add(1)
	defer t.waiting.Add(-1)
	late := time.NewTimer(turnTimeout)
	defer late.Stop()
	for {
		t.mu.Lock()
		moved := t.moved
		t.mu.Unlock()
		if t.queued.Load() < shortQueue {
			return
		}
		select {
		case <-moved:
		case <-gone:
			return
		case <-late.C:
			return
		}
	}
}

// wrote counts a frame that the connection has written.
func (t *turns) wrote(frame []byte) {
	if len(frame) < muxHeader || frame[muxTypeAt] != muxTypeData {
		return
	}
	t.queued.Add(int64(muxHeader - len(frame)))
	if t.waiting.Load() == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	close(t.moved)
	t.moved = make(chan struct{})
}

// countedConn is a connection under a muxer, which writes one frame at a time.
type countedConn struct {
	net.Conn
	turns *turns
}

func (c countedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.turns.wrote(b)
	return n, err
}

// fairConn is a muxed connection whose streams take turns.
type fairConn struct {
	network.MuxedConn
	turns *turns
}

func (c *fairConn) stream(s network.MuxedStream, err error) (network.MuxedStream, error) {
	if err != nil {
		return nil, err
	}
	return &fairStream{MuxedStream: s, turns: c.turns, gone: make(chan struct{})}, nil
}

// AcceptStream accepts a stream that takes turns.
func (c *fairConn) AcceptStream() (network.MuxedStream, error) {
	return c.stream(c.MuxedConn.AcceptStream())
}

// OpenStream opens a stream that takes turns.
func (c *fairConn) OpenStream(ctx context.Context) (network.MuxedStream, error) {
	return c.stream(c.MuxedConn.OpenStream(ctx))
}

type fairStream struct {
	network.MuxedStream
	turns *turns
	once  sync.Once
	gone  chan struct{} // closed when nobody waits for a write any more
}

// Write writes b, after its turn if it is large.
func (s *fairStream) Write(b []byte) (int, error) {
	if len(b) >= largeWrite {
		s.turns.wait(s.gone)
	}
	n, err := s.MuxedStream.Write(b)
	s.turns.queued.Add(int64(n))
	return n, err
}

func (s *fairStream) leave() { s.once.Do(func() { close(s.gone) }) }

// Close closes the stream; a write that waits goes on and fails.
func (s *fairStream) Close() error { defer s.leave(); return s.MuxedStream.Close() }

// Reset resets the stream; a write that waits goes on and fails.
func (s *fairStream) Reset() error { defer s.leave(); return s.MuxedStream.Reset() }

// ResetWithError is Reset with a code.
func (s *fairStream) ResetWithError(code network.StreamErrorCode) error {
	defer s.leave()
	return s.MuxedStream.ResetWithError(code)
}
