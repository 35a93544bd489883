package gateway

import (
	"io"
	"os"
	"strconv"
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
			const size, memory = 300 << 10, 2 << 20
			w := newWorld(t, withPolicy(limited("operations_per_peer: 8", "on_disconnect: {keep: 1s}")),
				func(_ *world, c *Config) { c.Memory = memory })
			l := w.lease()
			var stops []func()
			reader := func(size int) *remote {
				d := w.dial(w.agent, transport) // one for each: a connection has a window too
				r := d.run(w.start(l, "print", "--size="+strconv.Itoa(size))).answer()
				require.NoError(t, r.stream.SetDeadline(time.Time{}))
				stops = append(stops, r.beats(t))
				eventually(t, func() bool { return w.host.Running.Load() == 0 })
				return r
			}
			readers := []*remote{reader(size), reader(size)}
			time.Sleep(70 * time.Second) // beyond what a caller that is gone would get
			require.GreaterOrEqual(t, w.node.Status().Memory, int64(2*size), "there is room, so they may wait")
			for range 12 { // as many connections as a peer may have
				if w.node.Status().Memory >= memory || reader(size).refused != nil {
					break
				}
			}
			for _, stop := range stops {
				stop()
			}
			eventually(t, func() bool { return w.node.Status().Memory < memory })
			var err error
			for err == nil && readers[0].exit == nil {
				err = readers[0].next()
			}
			if err == nil { // all of it was on its way: it is the record that is asked for what is left
				require.NoError(t, readers[0].WriteFrame(&protocol.ExitAck{}))
				for err == nil {
					err = readers[0].next()
				}
				require.NotErrorIs(t, err, io.EOF, "what was kept for it is gone")
			}
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
