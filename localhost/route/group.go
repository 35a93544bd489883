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
// until own or fail, and passes commitStart in between: before it nothing runs, so
// fence and caller can refuse it; after it only the transport knows, so its answer
// counts. An error of a start therefore means that nothing ran. A connection
// belongs to the group until it is released, which happens exactly once.
type group struct {
	// mu guards everything below, and the flags of the pending starts.
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

// pending is one start that has not succeeded or failed yet.
type pending struct {
	group     *group
	cancel    context.CancelCauseFunc
	committed bool // handed to the transport
	abandoned bool // the caller is gone
}

func newGroup() *group {
	return &group{
		pending: make(map[*pending]struct{}),
		owned:   make(map[*CLIConnection]struct{}),
		changed: make(chan struct{}),
	}
}

// outcome is how a start ended.
type outcome struct {
	connection *CLIConnection
	err        error
}

// start runs one start in a goroutine of its own. It returns at once when the
// caller goes away before commitStart.
func (g *group) start(ctx context.Context, prepare func(context.Context) (Starter, error)) (*CLIConnection, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, fmt.Errorf("start: %w", err)
	}
	// The start must not die with the caller in an unknown state: the fence and
	// abandon cancel it, and it is always accounted for.
	inner, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	p, err := g.begin(cancel)
	if err != nil {
		cancel(err)
		return nil, err
	}
	done := make(chan outcome, 1)
	go func() {
		defer cancel(nil)
		done <- p.run(inner, prepare)
	}()
	select {
	case o := <-done:
		return o.connection, o.err
	case <-ctx.Done():
	}
	if err := context.Cause(ctx); p.abandon(err) {
		return nil, fmt.Errorf("start: %w", err)
	}
	o := <-done
	return o.connection, o.err
}

// run is the life of a pending start.
func (p *pending) run(ctx context.Context, prepare func(context.Context) (Starter, error)) outcome {
	start, err := prepare(ctx)
	if err == nil {
		err = p.commitStart()
	}
	if err != nil {
		p.fail()
		return outcome{err: err}
	}
	process, err := start(ctx)
	if err != nil {
		p.fail()
		if cause := context.Cause(ctx); errors.Is(cause, ErrUnavailable) {
			err = errors.Join(err, cause) // the fence cancelled it
		}
		return outcome{err: err}
	}
	return outcome{connection: p.own(process)}
}

// begin registers a start; cancel stops it. It is refused after fence.
func (g *group) begin(cancel context.CancelCauseFunc) (*pending, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.fenced {
		return nil, errFenced
	}
	p := &pending{group: g, cancel: cancel}
	g.pending[p] = struct{}{}
	g.activity.Raise()
	return p, nil
}

// commitStart is the last moment at which a start can be refused.
func (p *pending) commitStart() error {
	p.group.mu.Lock()
	defer p.group.mu.Unlock()
	switch {
	case p.group.fenced:
		return errFenced
	case p.abandoned:
		return ErrUnavailable // to nobody
	}
	p.committed = true
	return nil
}

// fail ends a start that has no process.
func (p *pending) fail() {
	p.group.mu.Lock()
	delete(p.group.pending, p)
	p.group.shrunk()
	f := p.group.emptied()
	p.group.mu.Unlock()
	f()
}

// own ends a start that has a process. If the fence has come meanwhile, the
// process ran and is retired like any other: close finds it.
func (p *pending) own(process Process) *CLIConnection {
	c := &CLIConnection{process: process, group: p.group}
	p.group.mu.Lock()
	defer p.group.mu.Unlock()
	delete(p.group.pending, p)
	p.group.owned[c] = struct{}{}
	p.group.shrunk()
	return c
}

// abandon tells the start that its caller is gone. False means that something may
// run, and that the caller must take the result, which comes soon.
func (p *pending) abandon(cause error) bool {
	p.group.mu.Lock()
	defer p.group.mu.Unlock()
	p.cancel(cause)
	if _, ok := p.group.pending[p]; !ok || p.committed {
		return false
	}
	p.abandoned = true
	return true
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
