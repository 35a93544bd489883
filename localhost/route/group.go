package route

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/lendcli/lend/localhost/internal/revision"
)

// retireGrace is how long a process of a retired route may take to end by itself
// after Terminate, before Close kills it.
const retireGrace = 500 * time.Millisecond

// group owns everything that one route has started. A start is pending from begin
// until own or fail, and passes commit in between: before it nothing runs, so fence
// and caller can refuse it; after it only the transport knows, so its answer counts.
// An error of a start therefore means that nothing ran. A connection belongs to the
// group until it is released, which happens exactly once.
type group struct {
	// mu guards everything below, and the stages of the pending starts.
	mu      sync.Mutex
	fenced  bool
	pending map[*pending]struct{}
	owned   map[*CLIConnection]struct{}
	changed chan struct{} // closed and replaced when pending shrinks

	activity *revision.Counter // told after every change of pending and owned; may be nil
	empty    func()            // called once, when nothing is pending or owned; see drain
}

// errFenced is what a start gets whose route is no longer current.
var errFenced = fmt.Errorf("route is retired: %w", ErrUnavailable)

func newGroup() *group {
	return &group{
		pending: make(map[*pending]struct{}),
		owned:   make(map[*CLIConnection]struct{}),
		changed: make(chan struct{}),
	}
}

// fence refuses every start from now on and cancels those that are pending. It
// does not block.
func (g *group) fence() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.fenced = true
	for p := range g.pending {
		p.cancel(errFenced)
	}
}

// dropPrepared drops what is ready and was not started before the fence. It is called
// after fence: whatever becomes ready from then on drops itself.
func (g *group) dropPrepared() {
	g.mu.Lock()
	var ready []*pending
	for p := range g.pending {
		if p.stage == prepared {
			ready = append(ready, p)
		}
	}
	g.mu.Unlock()
	for _, p := range ready {
		p.drop(errFenced)
	}
}

// release forgets c, whose tree is gone.
func (g *group) release(c *CLIConnection) {
	g.mu.Lock()
	delete(g.owned, c)
	g.activity.Raise()
	f := g.emptied()
	g.mu.Unlock()
	f()
}

// shrunk wakes those who wait for pending starts. mu is held.
func (g *group) shrunk() {
	g.activity.Raise()
	close(g.changed)
	g.changed = make(chan struct{})
}

// close fences the group, ends what it owns, in parallel, and waits for pending
// starts. Nil means that nothing is left; otherwise the rest is kept, and close
// may be called again. It returns when ctx is done at the latest.
func (g *group) close(ctx context.Context) error {
	g.fence()
	g.dropPrepared()
	tried := make(map[*CLIConnection]error)
	early := g.retireAll(ctx, tried)
	g.settle(ctx)
	early()
	g.retireAll(ctx, tried)() // those that were starting when the fence came
	g.mu.Lock()
	starting, running := len(g.pending), len(g.owned)
	g.mu.Unlock()
	if starting+running == 0 {
		return nil
	}
	errs := append(slices.Collect(maps.Values(tried)), context.Cause(ctx))
	return fmt.Errorf("%d starting, %d running: %w", starting, running, errors.Join(errs...))
}

// retireAll begins to end what the group owns and tried does not name; the result
// waits for the outcomes and puts them in tried.
func (g *group) retireAll(ctx context.Context, tried map[*CLIConnection]error) (wait func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	outcomes := make(map[*CLIConnection]chan error)
	for c := range g.owned {
		if _, ok := tried[c]; !ok {
			outcome := make(chan error, 1)
			outcomes[c] = outcome
			go func() { outcome <- c.retire(ctx) }()
		}
	}
	return func() {
		for c, outcome := range outcomes {
			tried[c] = <-outcome
		}
	}
}

// settle waits until no start is pending, or ctx is done.
func (g *group) settle(ctx context.Context) {
	for {
		g.mu.Lock()
		settled, changed := len(g.pending) == 0, g.changed
		g.mu.Unlock()
		if settled {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}
