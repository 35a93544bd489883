package operation

import (
	"bytes"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/gateway/internal/fakehost"
	"github.com/lendcli/lend/localhost/route"
	"github.com/lendcli/lend/protocol"
)

// attached makes an attachment without a loop that follows it, so that a test
// says what happens when.
func (h *harness) attached() *attachment {
	h.t.Helper()
	near, far := pipe(h.t)
	go func() { _, _ = io.Copy(io.Discard, near) }() // ends with the connection
	a := &attachment{failed: make(chan struct{}), Session: Session{
		Stream: far, Writer: protocol.NewWriter(far), Reset: func(protocol.Code) { _ = far.Close() }, Attached: true, Input: true,
	}}
	h.t.Cleanup(func() { _ = far.Close() })
	_, _, err := h.op.attach(a)
	require.NoError(h.t, err)
	return a
}

func TestSupplantedStreamSaysNothingMore(t *testing.T) {
	h := start(t, Config{}, true, sleeper)
	old := h.attached()
	require.NoError(t, h.op.takeInput(old, []byte("one")))
	h.attached() // it was told that three bytes of input have come
	require.ErrorIs(t, h.op.takeInput(old, []byte("two")), errSupplanted)
	require.ErrorIs(t, h.op.endInput(old, 3), errSupplanted)
	require.ErrorIs(t, h.op.acked(old, &protocol.Ack{}), errSupplanted)
	require.ErrorIs(t, h.op.closeOutput(old, protocol.Stdout), errSupplanted)
	require.ErrorIs(t, h.op.exitAcked(old), errSupplanted)
	h.op.mu.Lock()
	defer h.op.mu.Unlock()
	require.Equal(t, uint64(3), h.op.in.got, "input would reach the child twice")
	require.False(t, h.op.in.ended)
	require.False(t, h.op.out[0].gone)
	require.False(t, h.op.dropped)
}

func TestEndThatWasNotToldIsNotAcknowledged(t *testing.T) {
	h := start(t, Config{}, false, sleeper)
	c := h.dial(first{})
	c.until(func() bool { return c.accepted != nil })
	require.NoError(t, c.WriteFrame(&protocol.ExitAck{}))
	require.ErrorIs(t, c.result(), errUnwanted)
	h.op.mu.Lock()
	dropped := h.op.dropped
	h.op.mu.Unlock()
	require.False(t, dropped, "nothing is forgotten while the command runs")
	again := h.dial(first{attach: true, token: true})
	require.Equal(t, protocol.CodeProtocolViolation, again.finish().Code)
}

func TestSingleBytesCostLittle(t *testing.T) {
	const n = 20_000
	t.Run("input", func(t *testing.T) {
		const n = 4*n + n // more than a pipe holds
		h := start(t, Config{}, true, sleeper)
		c := h.dial(first{stdin: true})
		c.until(func() bool { return c.accepted != nil })
		for i := range n {
			require.NoError(t, c.send(uint64(i), []byte{'x'}))
		}
		require.Eventually(t, func() bool {
			h.op.mu.Lock()
			defer h.op.mu.Unlock()
			return h.op.in.got == n
		}, patience, time.Millisecond)
		h.op.mu.Lock()
		defer h.op.mu.Unlock()
		require.LessOrEqual(t, len(h.op.in.queue), n/1000)
		require.Less(t, h.budget.Used(), int64(2*n+pooledSize))
	})
	t.Run("output", func(t *testing.T) {
		b := NewBudget(64 << 20)
		h := start(t, Config{Budget: b}, false, sleeper)
		f, want := &h.op.out[0], pattern(n)
		for i := range n {
			p := b.pool.Get()
			(*p)[protocol.DataHeaderMax] = want[i]
			require.True(t, h.op.keep(f, p, 1))
			if i == n/2 {
				h.attached()
				h.op.flush() // in the middle of a chunk
			}
		}
		h.op.mu.Lock()
		chunks := len(f.chunks)
		h.op.mu.Unlock()
		require.LessOrEqual(t, chunks, n/1000)
		require.Less(t, b.Used(), int64(2*n+pooledSize))

		c := h.dial(first{attach: true, token: true, stdout: 7})
		c.until(func() bool { return len(c.stdout) == n-7 })
		require.True(t, bytes.Equal(want[7:], c.stdout))
	})
}

// stuck is a stream whose other end takes nothing.
type stuck struct{ net.Conn }

func TestReplayDoesNotWaitForEver(t *testing.T) {
	near, far := net.Pipe()
	defer near.Close()
	done := make(chan error, 1)
	go func() {
		done <- Replay(Session{
			Stream: stuck{far}, Frames: protocol.NewReader(far, protocol.Gateway), Writer: protocol.NewWriter(far),
			Reset: func(protocol.Code) { _ = far.Close() },
		}, protocol.Exit{})
	}()
	select {
	case err := <-done:
		require.Error(t, err)
	case <-time.After(2 * DefaultExitAck):
		require.FailNow(t, "nobody reads, and it waits")
	}
}

func TestDroppedTailsFreeTheirStreams(t *testing.T) {
	h := start(t, Config{}, false, func(c *fakehost.Child) route.Exit {
		_, _ = c.Stdout.Write(pattern(100))
		return route.Exit{}
	})
	c := h.dial(first{})
	c.until(func() bool { return c.exit != nil })
	h.op.Drop()
	require.Error(t, c.result(), "its stream is aborted")
	h.wait(h.op.Done())
}
