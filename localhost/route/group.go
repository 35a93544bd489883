package route

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// retireGrace is how long a process of a retired route may take to end by itself
// after Terminate, before Close kills it.
const retireGrace = 500 * time.Millisecond

// group owns everything that one route has started. A start is pending from
// begin until commit or fail; a connection belongs to the group from commit
// until it is released, which happens exactly once. After fence no start
// succeeds: one that was pending is cancelled, and its late process is closed by
// the goroutine that started it.
type group struct {
	// mu guards everything below.
	mu      sync.Mutex
	fenced  bool
	pending map[*pending]struct{}
	owned   map[*CLIConnection]struct{}
	changed chan struct{} // closed and replaced when pending shrinks
}

// errFenced is what a start gets whose route is no longer current.
//
//nolint:gochecknoglobals // an error value
var errFenced = fmt.Errorf("route is retired: %w", ErrUnavailable)

// pending is one start that has not succeeded or failed yet.
type pending struct {
	group     *group
	cancel    context.CancelCauseFunc
	abandoned bool // the caller is gone; guarded by group.mu
}

func newGroup() *group {
	return &group{
		pending: make(map[*pending]struct{}),
		owned:   make(map[*CLIConnection]struct{}),
		changed: make(chan struct{}),
	}
}

// start runs launch in a goroutine of its own and gives the process to the
// caller, unless the group is fenced or the caller goes away first.
func (g *group) start(ctx context.Context, launch func(context.Context) (Process, error)) (*CLIConnection, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, fmt.Errorf("start: %w", err)
	}
	// The start must not die with the caller in an unknown state: it is
	// cancelled by the fence, or when it is abandoned, and always accounted for.
	inner, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	p, err := g.begin(cancel)
	if err != nil {
		cancel(err)
		return nil, err
	}
	type result struct {
		connection *CLIConnection
		err        error
	}
	done := make(chan result, 1)
	go func() {
		defer cancel(nil)
		process, err := launch(inner)
		if err != nil {
			p.fail()
			done <- result{nil, errors.Join(err, fencedCause(inner))}
			return
		}
		connection, err := p.commit(process)
		done <- result{connection, err}
	}()
	select {
	case r := <-done:
		return r.connection, r.err
	case <-ctx.Done():
	}
	if err := context.Cause(ctx); p.abandon(err) {
		return nil, fmt.Errorf("start: %w", err)
	}
	r := <-done // it was decided before the caller went away
	return r.connection, r.err
}

// fencedCause returns ErrUnavailable if the fence cancelled the start.
func fencedCause(ctx context.Context) error {
	if cause := context.Cause(ctx); errors.Is(cause, ErrUnavailable) {
		return cause
	}
	return nil
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
	return p, nil
}

// fail ends a start that has no process.
func (p *pending) fail() {
	p.group.mu.Lock()
	defer p.group.mu.Unlock()
	delete(p.group.pending, p)
	p.group.shrunk()
}

// commit gives the process to the group and returns its connection. If the start
// was fenced or abandoned meanwhile, the process is closed before the start ends,
// and kept for a later close if that fails.
func (p *pending) commit(process Process) (*CLIConnection, error) {
	c := &CLIConnection{process: process, group: p.group}
	if p.own(c, false) {
		return c, nil
	}
	c.retired.Store(true)
	if err := process.Close(); err != nil {
		p.own(c, true)
		return nil, errors.Join(errFenced, err)
	}
	p.fail()
	return nil, errFenced
}

// own ends the start by making c the group's; a late one only if it must.
func (p *pending) own(c *CLIConnection, late bool) bool {
	g := p.group
	g.mu.Lock()
	defer g.mu.Unlock()
	if !late && (g.fenced || p.abandoned) {
		return false
	}
	delete(g.pending, p)
	g.owned[c] = struct{}{}
	g.shrunk()
	return true
}

// abandon tells the start that its caller is gone. False means that the start
// has already ended, and the caller must take its result.
func (p *pending) abandon(cause error) bool {
	p.group.mu.Lock()
	defer p.group.mu.Unlock()
	if _, ok := p.group.pending[p]; !ok {
		return false
	}
	p.abandoned = true
	p.cancel(cause)
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
	defer g.mu.Unlock()
	delete(g.owned, c)
}

// shrunk wakes those who wait for pending starts. mu is held.
func (g *group) shrunk() {
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
	g.retireAll(ctx, tried)() // late processes that their start could not close
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
