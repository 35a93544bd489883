package door

import (
	"bytes"
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/stretchr/testify/require"
)

// gate is a connection that writes when it is let.
type gate struct {
	net.Conn
	open chan struct{}
}

func (g *gate) Write(b []byte) (int, error) {
	<-g.open
	return g.Conn.Write(b)
}

// twoEnds returns a gateway's end of a muxed connection, which writes nothing until open
// is called, and a caller's.
func twoEnds(t *testing.T) (ours, theirs network.MuxedConn, open func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	near, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	far, err := l.Accept()
	require.NoError(t, err)
	g := &gate{near, make(chan struct{})}
	open = sync.OnceFunc(func() { close(g.open) })
	ours, err = Muxer().NewConn(g, true, &network.NullScope{})
	require.NoError(t, err)
	theirs, err = Muxer().NewConn(far, false, &network.NullScope{})
	require.NoError(t, err)
	t.Cleanup(func() { open(); _, _ = ours.Close(), theirs.Close() })
	return ours, theirs, open
}

func queue(t *testing.T, c network.MuxedConn) *turns {
	t.Helper()
	p, ok := c.(*politeConn)
	require.True(t, ok)
	f, ok := p.MuxedConn.(*fairConn)
	require.True(t, ok)
	return f.turns
}

// A little of one stream does not wait behind much of another that was written before.
func TestLittleOvertakesMuch(t *testing.T) {
	ours, theirs, open := twoEnds(t)
	bulk, err := ours.OpenStream(context.Background())
	require.NoError(t, err)
	line, err := ours.OpenStream(context.Background())
	require.NoError(t, err)
	const frame, frames = 60_000, 16
	var all sync.WaitGroup
	all.Go(func() {
		for i := range frames {
			_, err := bulk.Write(bytes.Repeat([]byte{byte(i)}, frame))
			if err != nil {
				return // the test has failed
			}
		}
	})
	q := queue(t, ours)
	require.Eventually(t, func() bool { return q.waiting.Load() == 1 }, 30*time.Second, time.Millisecond)
	require.Less(t, q.queued.Load(), int64(shortQueue+frame))
	_, err = line.Write([]byte("a line"))
	require.NoError(t, err, "it is queued at once")
	open()
	arrived := make(chan int, 2)
	for range 2 {
		s, err := theirs.AcceptStream()
		require.NoError(t, err)
		all.Go(func() {
			b := make([]byte, 6)
			if _, err := io.ReadFull(s, b); err == nil && string(b) == "a line" {
				arrived <- 0
				return
			}
			n, _ := io.CopyN(io.Discard, s, frames*frame-6)
			arrived <- int(n) + 6
		})
	}
	require.ElementsMatch(t, []int{0, frames * frame}, []int{<-arrived, <-arrived})
	all.Wait()
	require.Eventually(t, func() bool { return q.queued.Load() == 0 }, 30*time.Second, time.Millisecond, "the count is exact")
}

// Whoever waits for his turn notices that his stream is gone, and waits no longer than
// turnTimeout if it is not.
func TestATurnIsNotAwaitedForEver(t *testing.T) {
	ours, _, open := twoEnds(t)
	q := queue(t, ours)
	for _, leave := range []func(network.MuxedStream) error{
		network.MuxedStream.Reset,
		network.MuxedStream.Close,
		func(s network.MuxedStream) error { return s.ResetWithError(1) },
	} {
		s, err := ours.OpenStream(context.Background())
		require.NoError(t, err)
		q.queued.Add(shortQueue)
		began, done := time.Now(), make(chan error, 1)
		go func() { _, err := s.Write(make([]byte, largeWrite)); done <- err }()
		for q.waiting.Load() == 0 && time.Since(began) < turnTimeout/2 {
			time.Sleep(time.Millisecond)
		}
		require.NoError(t, leave(s))
		require.Error(t, <-done)
		q.queued.Add(-shortQueue)
	}
	s, err := ours.OpenStream(context.Background())
	require.NoError(t, err)
	q.queued.Add(shortQueue)
	_, err = s.Write(make([]byte, largeWrite))
	require.NoError(t, err, "the muxer takes it")
	open()
}
