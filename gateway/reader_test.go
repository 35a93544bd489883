package gateway

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/protocol"
)

// What is kept for readers that take nothing after the end may grow up to the budget;
// then the one that ended first goes, and nobody else pays. LEND_TEST_LONG=1 waits for
// it, more than a minute.
func TestTheOldestReaderPaysForMemory(t *testing.T) {
	if os.Getenv("LEND_TEST_LONG") != "1" {
		t.Skip("needs LEND_TEST_LONG=1")
	}
	for _, transport := range transports() {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			const size = 900 << 10
			w := newWorld(t, withPolicy(limited("operations_per_peer: 8", "on_disconnect: {keep: 1s}")),
				func(_ *world, c *Config) { c.Memory = 2 * size })
			d, l := w.dial(w.agent, transport), w.lease()
			var readers []*remote
			for range 2 { // below the budget: they may wait
				r := d.run(w.start(l, "print", "--size=921600")).answer()
				defer r.beats(t)()
				readers = append(readers, r)
				eventually(t, func() bool { return w.host.Running.Load() == 0 })
			}
			time.Sleep(70 * time.Second) // beyond what a caller that is gone would get
			for _, r := range readers {
				require.True(t, w.node.Status().Memory > 0 && r.exit == nil)
			}
			third := d.run(w.start(l, "print", "--size=921600")).answer()
			if third.refused != nil { // its first bytes may already be over
				require.Equal(t, protocol.CodeBusy, third.refused.Code)
			}
			var err error
			for err == nil && readers[0].exit == nil {
				err = readers[0].next()
			}
			require.Error(t, err, "what was kept for it is gone")
			require.Equal(t, uint64(size), readers[1].finish().Stdout, "this one has everything")
		})
	}
}

// beats shows that r is alive, until stop is called.
func (r *remote) beats(t *testing.T) (stop func()) {
	t.Helper()
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(2 * time.Second)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				_ = r.WriteFrame(&protocol.Ack{})
			}
		}
	}()
	return func() { close(done); <-ended }
}
