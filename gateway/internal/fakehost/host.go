package fakehost

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/lendcli/lend/localhost/route"
	"github.com/lendcli/lend/protocol/argv"
)

// Host resolves the routes that it was given, and starts programs by the first
// argument of a call. It fulfils gateway.Runtime. The zero value knows nothing.
type Host struct {
	// Programs must not be changed once it is in use; SetProgram is for that.
	Programs map[string]Program

	// Resolves and Starts count calls; Running counts processes.
	Resolves, Starts, Running atomic.Int64

	mu     sync.Mutex // guards all that follows
	routes []route.Descriptor
	onTry  func(context.Context, route.StartRequest) error
}

// Publish makes d a current route.
func (h *Host) Publish(d route.Descriptor) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.routes = append(h.routes, d)
}

// Retire forgets all routes.
func (h *Host) Retire() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.routes = nil
}

// OnStart is called before a process starts and may fail or panic instead.
func (h *Host) OnStart(f func(context.Context, route.StartRequest) error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.onTry = f
}

// Resolve finds the one route.
func (h *Host) Resolve(q route.Query) (route.Descriptor, error) {
	h.Resolves.Add(1)
	h.mu.Lock()
	defer h.mu.Unlock()
	var found []route.Descriptor
	for _, d := range h.routes {
		id := d.Identity
		if id.Connector == q.Connector && id.Version == q.Version && (q.Connection.IsZero() || q.Connection == id.Connection) {
			found = append(found, d)
		}
	}
	switch len(found) {
	case 0:
		return route.Descriptor{}, route.ErrNotFound
	case 1:
		return found[0], nil
	}
	return route.Descriptor{}, route.ErrAmbiguous
}

// Start runs the program that the first argument names.
func (h *Host) Start(ctx context.Context, r route.StartRequest) (route.Process, error) {
	h.Starts.Add(1)
	h.mu.Lock()
	try := h.onTry
	current := false
	for _, d := range h.routes {
		current = current || d.Identity == r.Identity
	}
	h.mu.Unlock()
	if try != nil {
		if err := try(ctx, r); err != nil {
			return nil, err
		}
	}
	if !current {
		return nil, route.ErrIdentityMismatch
	}
	program := h.program(r.Call.Arguments[0])
	if program == nil {
		return nil, route.ErrUnavailable
	}
	p, err := Start(program, r.Call.Arguments, r.Stdin)
	if err != nil {
		return nil, err
	}
	h.Running.Add(1)
	p.onClose = func() { h.Running.Add(-1) }
	return p, nil
}

func (h *Host) program(name string) Program {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.Programs[name]
}

// SetProgram makes p what a first argument starts.
func (h *Host) SetProgram(name string, p Program) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Programs[name] = p
}

// Contract is one of commands, each with a free rest.
func Contract(commands ...argv.Command) argv.Contract {
	return argv.Contract{Command: "fx", Commands: commands}
}
