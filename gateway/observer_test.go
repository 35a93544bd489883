package gateway

import (
	"context"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/gateway/ledger"
	"github.com/lendcli/lend/localhost/route"
	"github.com/lendcli/lend/protocol"
)

// told counts what an Observer is told.
type told struct {
	mu   sync.Mutex
	seen map[string]int
	last protocol.Exit
}

func (o *told) add(what string, took time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if took < 0 || took > patience {
		what += " in a strange time"
	}
	o.seen[what]++
}

func (o *told) Admitted(took time.Duration) { o.add("admitted", took) }
func (o *told) Recorded(took time.Duration) { o.add("recorded", took) }
func (o *told) Refused(c protocol.Code)     { o.add("refused "+c.String(), 0) }
func (o *told) Event(name string)           { o.add("event "+name, 0) }

func (o *told) Ended(x protocol.Exit) {
	o.add("ended "+x.Code.String(), 0)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last = x
}

func (o *told) all() map[string]int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return maps.Clone(o.seen)
}

func TestObserverIsTold(t *testing.T) {
	t.Parallel()
	for _, transport := range transports() {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			o := &told{seen: map[string]int{}}
			w := newWorld(t, func(_ *world, c *Config) { c.Observer = o })
			d := w.dial(w.agent, transport)
			s := w.start(w.lease(), "print", "--size=7")
			d.run(s).finish()
			d.run(s).finish() // the same again is no admission
			d.run(w.start(w.lease(), "print", "--evil=1")).wantRefused(protocol.CodeArgumentRejected)
			d.run(w.start([]byte("no lease"), "print")).wantRefused(protocol.CodeDenied)
			w.host.OnStart(func(context.Context, route.StartRequest) error { return route.ErrUnavailable })
			d.run(w.start(w.lease(), "print")).wantRefused(protocol.CodeNotStarted)
			w.node.Record(ledger.Event{Name: "degraded"})
			want := map[string]int{
				"admitted": 1, "recorded": 2, "ended OK": 1, "event degraded": 1, "event gateway.started": 1,
				"refused ARGUMENT_REJECTED": 1, "refused DENIED": 1, "refused NOT_STARTED": 1,
			}
			eventually(t, func() bool { return maps.Equal(o.all(), want) })
			require.Equal(t, uint64(7), o.last.Stdout)
		})
	}
}

func TestLinksOfStatus(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.Zero(t, w.node.Status().Links)
	w.dial(w.agent, "tcp")
	w.dial(w.agent, "quic")
	_, err := w.dial(w.agent, "quic").stream(protocol.RunID).Write([]byte{9}) // it begins with what is said
	require.NoError(t, err)
	eventually(t, func() bool {
		l := w.node.Status().Links
		return l.TCP == 1 && l.QUIC == 2 && l.Other == 0 && l.Streams >= 1
	})
	_, _ = w.tryDial(newIdentity(t), "tcp") // its end may think for a moment that it is connected
	eventually(t, func() bool { return w.node.Status().Links.TurnedAway == 1 })
}
