package gateway

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/localhost/route"
	"github.com/lendcli/lend/protocol"
)

// preparing is a Runtime that prepares, and remembers in which order things came.
type preparing struct {
	Runtime
	mu     sync.Mutex
	events []string
	failed error // of Start; nil: it starts
	live   atomic.Int64
}

func (p *preparing) note(event string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.events = append(p.events, event)
}

func (p *preparing) noted() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.events...)
}

// Start implements Runtime; the gateway prefers Prepare.
func (p *preparing) Start(context.Context, route.StartRequest) (route.Process, error) {
	return nil, errors.New("not prepared")
}

func (p *preparing) Prepare(_ context.Context, r route.StartRequest) route.Prepared {
	p.note("prepared")
	p.live.Add(1)
	return &noted{preparing: p, request: r}
}

// noted is one start; it counts as live until it was started or dropped.
type noted struct {
	*preparing
	request route.StartRequest
	over    atomic.Bool
}

func (n *noted) end() {
	if !n.over.Swap(true) {
		n.live.Add(-1)
	}
}

func (n *noted) Start(ctx context.Context) (route.Process, error) {
	defer n.end()
	n.note("started")
	if n.failed != nil {
		return nil, n.failed
	}
	return n.Runtime.Start(ctx, n.request)
}

func (n *noted) Drop() {
	defer n.end()
	n.note("dropped")
}

// recordedObserver notes when a start became durable.
type recordedObserver struct {
	Observer
	note func()
}

func (o recordedObserver) Recorded(time.Duration) { o.note() }

func TestStartIsPreparedWhileItIsRecorded(t *testing.T) {
	t.Parallel()
	recorded := func(p *preparing) { p.note("recorded") }
	for title, c := range map[string]struct {
		recorded func(*preparing) // once the record is durable
		failed   error
		lost     bool // the record cannot be made
		want     protocol.Code
		events   []string
	}{
		"started":      {recorded, nil, false, protocol.CodeOK, []string{"prepared", "recorded", "started"}},
		"not-recorded": {recorded, nil, true, protocol.CodeInternal, []string{"prepared", "dropped"}},
		"fault-in-between": {
			func(*preparing) { panic("observer") }, nil, false, protocol.CodeNotStarted, []string{"prepared", "dropped"},
		},
		"not-started": {
			recorded, errors.New("no such file"), false, protocol.CodeNotStarted, []string{"prepared", "recorded", "started", "dropped"},
		},
	} {
		for _, transport := range transports() {
			t.Run(title+"/"+transport, func(t *testing.T) {
				t.Parallel()
				p := &preparing{failed: c.failed}
				w := newWorld(t, func(w *world, cfg *Config) {
					p.Runtime = w.host
					cfg.Runtime = p
					cfg.Observer = recordedObserver{nobody{}, func() { c.recorded(p) }}
				})
				w.node.ledger = faultyBook{w.node.ledger, func(at string) error {
					if at == "record" && c.lost {
						return errBroken
					}
					return nil
				}}
				r := w.dial(w.agent, transport).run(w.start(w.lease(), "exit", "--code=0"))
				if c.want == protocol.CodeOK {
					r.finish()
				} else {
					r.wantRefused(c.want)
				}
				require.Equal(t, c.events, p.noted())
				require.Zero(t, p.live.Load(), "something prepared is left")
			})
		}
	}
}

// What was not admitted is not prepared: files of the owner's are looked at only for
// who may start.
func TestNothingIsPreparedForWhoIsRefused(t *testing.T) {
	t.Parallel()
	p := &preparing{}
	w := newWorld(t, func(w *world, cfg *Config) { p.Runtime = w.host; cfg.Runtime = p })
	d, l := w.dial(w.agent, "tcp"), w.lease()
	w.node.suspended.Store(true)
	d.run(w.start(l, "exit", "--code=0")).wantRefused(protocol.CodePolicyDenied)
	w.node.suspended.Store(false)
	require.Empty(t, p.noted())
	s := w.start(l, "exit", "--code=0")
	d.run(s).finish()
	d.run(s).finish()
	require.Equal(t, []string{"prepared", "started"}, p.noted(), "the same again is answered from the record")
}
