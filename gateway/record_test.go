package gateway

import (
	"bytes"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/p2p/net/swarm"
	"github.com/multiformats/go-multiaddr"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/gateway/ledger"
)

// recorded are the events of a name, oldest first.
func (w *world) recorded(name string) []ledger.Event {
	w.t.Helper()
	var out []ledger.Event
	require.NoError(w.t, w.ledger.Walk(func(e ledger.Entry) error {
		if e.Event != nil && e.Event.Name == name {
			out = append(out, *e.Event)
		}
		return nil
	}))
	return out
}

func TestRecord(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.node.Record(ledger.Event{Name: "lockdown.on", Facts: map[string]string{"why": "a test"}})
	got := w.recorded("lockdown.on")
	require.Len(t, got, 1)
	require.Equal(t, "a test", got[0].Facts["why"])
	require.WithinDuration(t, w.clock.now(), got[0].At, patience)
}

// TestRecordThatIsRefused: whoever reads the log learns of it.
func TestRecordThatIsRefused(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	n := &Node{cfg: Config{Now: (&clock{}).now, Log: zerolog.New(&log), Observer: nobody{}}, ledger: locked{errors.New("lost")}}
	n.Record(ledger.Event{Name: "lockdown.on"})
	require.Contains(t, log.String(), `"level":"error"`)
	require.Contains(t, log.String(), "lockdown.on")
}

// A listener that fails is a degraded mode: recorded when it begins and when it ends.
func TestListenerThatFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s, ok := w.node.host.Network().(*swarm.Swarm)
	require.True(t, ok)
	var tcp multiaddr.Multiaddr
	for _, a := range w.node.listening {
		if _, err := a.ValueForProtocol(multiaddr.P_TCP); err == nil {
			tcp = a
		}
	}
	address := "127.0.0.1:" + must(tcp.ValueForProtocol(multiaddr.P_TCP))
	var taken net.Listener
	eventually(t, func() bool { // the sweeper may be quicker
		s.ListenClose(tcp)
		l, err := net.Listen("tcp", address)
		taken = l
		return err == nil
	})
	eventually(t, func() bool { return len(w.recorded("degraded")) == 1 })
	require.Equal(t, "a listener", w.recorded("degraded")[0].Facts["what"])
	require.Empty(t, w.recorded("recovered"))
	require.NoError(t, taken.Close())
	eventually(t, func() bool { return len(w.recorded("recovered")) == 1 })
	require.Len(t, w.recorded("degraded"), 1, "it is said once")
	w.dial(w.agent, "tcp").run(w.start(w.lease(), "exit", "--code=0")).finish()
}

// A ledger that has failed cannot say so itself: the log does, once.
func TestLedgerThatFails(t *testing.T) {
	t.Parallel()
	said := make(chan struct{}, 100)
	w := newWorld(t, func(_ *world, c *Config) {
		c.Log = zerolog.New(writer(func(b []byte) {
			if bytes.Contains(b, []byte(`"level":"error"`)) && bytes.Contains(b, []byte("nothing starts any more")) {
				said <- struct{}{}
			}
		}))
	})
	require.NoError(t, w.ledger.Close())
	select {
	case <-said:
	case <-time.After(patience):
		t.Fatal("nobody said it")
	}
	later := time.NewTimer(3 * sweepEvery)
	<-later.C
	require.Empty(t, said, "it says so once")
}

type writer func([]byte)

func (w writer) Write(b []byte) (int, error) { w(b); return len(b), nil }
