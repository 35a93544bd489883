package route

import (
	"cmp"
	"context"
	"errors"
	"fmt"
)

// errOver is what a start gets that was dropped, or begun before.
var errOver = fmt.Errorf("start is over: %w", ErrUnavailable)

// stage is how far a start has come.
type stage int

const (
	preparing stage = iota // the launcher has it
	unwanted               // the same, and what the launcher makes is dropped
	prepared               // it can be started
	over                   // it was started or dropped, or could not be prepared
)

// pending is a start that is being prepared by its route's launcher, or is ready, or
// over; it implements Prepared. Retirement of the route drops it as well.
type pending struct {
	group *group
	// ctx is the launcher's. It does not end with the caller's, so that the start is
	// always accounted for.
	ctx    context.Context //nolint:containedctx // of one start
	cancel context.CancelCauseFunc
	ready  chan struct{} // closed when the launcher has answered, and err is set

	stage   stage // guarded by group.mu, as what follows
	starter Starter
	err     error // why it cannot be started
}

// prepare registers a start and readies it in a goroutine of its own, which settles
// it. It is refused after fence.
func (g *group) prepare(ctx context.Context, launch func(context.Context) (Starter, error)) (*pending, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, fmt.Errorf("start: %w", err)
	}
	p := &pending{group: g, ready: make(chan struct{})}
	p.ctx, p.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	if err := g.begin(p); err != nil {
		p.cancel(err)
		return nil, err
	}
	go func() {
		defer close(p.ready)
		p.settle(launch(p.ctx))
	}()
	return p, nil
}

func (g *group) begin(p *pending) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.fenced {
		return errFenced
	}
	g.pending[p] = struct{}{}
	g.activity.Raise()
	return nil
}

// settle takes the launcher's answer: what nobody wants any more is dropped.
func (p *pending) settle(starter Starter, err error) {
	if p.keep(starter, err) {
		return
	}
	defer p.fail()
	if err == nil {
		starter.Drop()
	}
}

func (p *pending) keep(starter Starter, err error) bool {
	p.group.mu.Lock()
	defer p.group.mu.Unlock()
	if err == nil && p.stage == preparing && !p.group.fenced {
		p.stage, p.starter = prepared, starter
		return true
	}
	p.stage, p.err = over, cmp.Or(p.err, p.because(err), errFenced)
	return false
}

// because joins the fence to an error of the launcher that it has caused.
func (p *pending) because(err error) error {
	if cause := context.Cause(p.ctx); err != nil && errors.Is(cause, ErrUnavailable) {
		return errors.Join(err, cause)
	}
	return err
}

// Start implements Prepared.
func (p *pending) Start(ctx context.Context) (Process, error) {
	c, err := p.start(ctx)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// start waits until the start is ready, and starts it. When ctx is done before the
// transport has it, it is dropped and start returns at once; afterwards the
// transport's answer counts.
func (p *pending) start(ctx context.Context) (*CLIConnection, error) {
	select {
	case <-p.ready:
	case <-ctx.Done():
	}
	if err := context.Cause(ctx); err != nil {
		p.drop(err)
		return nil, fmt.Errorf("start: %w", err)
	}
	starter, err := p.commit()
	if err != nil {
		p.drop(err)
		return nil, err
	}
	kept := false
	defer func() {
		if !kept {
			p.fail() // also if the launcher panics
		}
		p.cancel(nil)
	}()
	stop := context.AfterFunc(ctx, func() { p.cancel(context.Cause(ctx)) })
	defer stop()
	process, err := starter.Start(p.ctx)
	if err != nil {
		return nil, p.because(err)
	}
	kept = true
	return p.own(process), nil
}

// commit is the last moment at which a start can be refused.
func (p *pending) commit() (Starter, error) {
	p.group.mu.Lock()
	defer p.group.mu.Unlock()
	switch {
	case p.stage != prepared:
		return nil, cmp.Or(p.err, errOver)
	case p.group.fenced:
		return nil, errFenced
	}
	p.stage = over
	return p.starter, nil
}

// Drop implements Prepared.
func (p *pending) Drop() { p.drop(errOver) }

func (p *pending) drop(cause error) {
	p.group.mu.Lock()
	was := p.stage
	if was == preparing {
		p.stage, p.err = unwanted, cause
		p.cancel(cause) // settle does the rest
	}
	if was == prepared {
		p.stage, p.err = over, cause
	}
	p.group.mu.Unlock()
	if was == prepared {
		defer p.fail()
		p.starter.Drop()
	}
}

// fail ends a start that has no process.
func (p *pending) fail() {
	p.group.mu.Lock()
	delete(p.group.pending, p)
	p.group.shrunk()
	f := p.group.emptied()
	p.group.mu.Unlock()
	p.cancel(nil)
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
