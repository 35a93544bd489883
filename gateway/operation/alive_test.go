package operation

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/gateway/internal/fakehost"
	"github.com/lendcli/lend/localhost/route"
	"github.com/lendcli/lend/protocol"
)

// beating acknowledges again and again what c has, until stop is called.
func (c *caller) beating(every time.Duration) (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				_ = c.WriteFrame(&protocol.Ack{Stdout: c.acked.Stdout, Stderr: c.acked.Stderr})
			}
		}
	}()
	return func() { close(done); <-ended }
}

// A reader that stops after the end is waited for, for much longer than one that may
// be gone, as long as it shows that it is alive. spec: END-4, FLOW-6
func TestAReaderThatIsAliveIsWaitedFor(t *testing.T) {
	const exitAck = 40 * time.Millisecond
	for title, size := range map[string]int{"exit-was-sent": 10, "more-than-the-stream-holds": protocol.MinWindow} {
		t.Run(title, func(t *testing.T) {
			limits := unlimited()
			limits.Detached = time.Millisecond // of no help
			h := start(t, Config{ExitAck: exitAck, Limits: limits}, false, printer(size))
			c := h.dial(first{})
			c.until(func() bool { return c.accepted != nil })
			stop := c.beating(exitAck / 4)
			select {
			case err := <-c.served:
				t.Fatalf("it was not waited for: %v", err)
			case <-time.After(3 * stall * exitAck):
			}
			stop()
			require.Equal(t, uint64(size), c.finish().Stdout)
			require.Len(t, c.stdout, size)
			h.wait(h.op.Done())
		})
	}
}

// Once it is silent it is gone, and with the grace what was kept for it.
func TestAReaderThatFallsSilentIsGone(t *testing.T) {
	limits := unlimited()
	limits.Detached = time.Millisecond
	h := start(t, Config{ExitAck: 20 * time.Millisecond, Limits: limits}, false, printer(10))
	c := h.dial(first{})
	c.until(func() bool { return c.exit != nil })
	stop := c.beating(5 * time.Millisecond)
	time.Sleep(100 * time.Millisecond) // longer than the time without a beat
	stop()
	require.ErrorContains(t, c.result(), "timeout")
	h.wait(h.op.Done())
}

// A gateway that closes has no time for a reader that takes nothing.
func TestShutdownDoesNotWaitForAReader(t *testing.T) {
	h := start(t, Config{ExitAck: 40 * time.Millisecond}, false, printer(10))
	c := h.dial(first{})
	c.until(func() bool { return c.exit != nil })
	defer c.beating(5 * time.Millisecond)()
	select {
	case <-h.op.Done():
		t.Fatal("it was not waited for")
	case <-time.After(400 * time.Millisecond):
	}
	h.op.Shutdown()
	require.ErrorContains(t, c.result(), "timeout")
	h.wait(h.op.Done())
}

// Overdue is what is kept for a reader that takes nothing, beyond the time that one
// which is gone would get: whoever needs the memory may have it.
func TestOverdue(t *testing.T) {
	const exitAck = 150 * time.Millisecond // a beat may be as late on a busy machine
	limits := unlimited()
	limits.Detached = 20 * time.Millisecond
	goOn := make(chan struct{})
	h := start(t, Config{ExitAck: exitAck, Limits: limits}, false, func(c *fakehost.Child) route.Exit {
		exit := printer(10)(c)
		<-goOn
		return exit
	})
	c := h.dial(first{})
	c.until(func() bool { return len(c.stdout) == 10 })
	_, overdue := h.op.Overdue()
	require.False(t, overdue, "it runs")
	close(goOn)
	c.until(func() bool { return c.exit != nil })
	stop := c.beating(3 * time.Millisecond)
	ended, overdue := h.op.Overdue()
	require.False(t, overdue, "not yet")
	require.False(t, ended.IsZero())
	for !overdue {
		require.Less(t, time.Since(ended), patience)
		time.Sleep(time.Millisecond) // its clock is the only sign
		_, overdue = h.op.Overdue()
	}
	require.Greater(t, time.Since(ended), stall*exitAck)
	stop()
	h.op.Drop()
	require.Error(t, c.result())
	h.wait(h.op.Done())
	_, overdue = h.op.Overdue()
	require.False(t, overdue, "nothing is kept any more")
}
