package route

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/lendcli/lend/localhost/internal/revision"
	"github.com/lendcli/lend/protocol/name"
)

// Launcher starts the CLI of one route. It is bound to the route's release and
// connection, so the request cannot choose either. Prepare may be called
// concurrently; it checks the request and readies the start, and nothing runs yet.
// The registry calls Close once, after the route was retired and nothing of it
// runs any more.
type Launcher interface {
	Prepare(ctx context.Context, r StartCLIRequest) (Starter, error)
	Close() error
}

// Starter is a start that is ready, and of which nothing runs. The registry calls
// Start or Drop, once.
type Starter interface {
	// Start starts it. When ctx is done it gives up if it still can; an error means
	// that nothing ran, and nothing will.
	Start(ctx context.Context) (Process, error)
	// Drop gives up what was made for it. It does not block for long.
	Drop()
}

// slot is the place that at most one current route fills.
type slot struct {
	connector  name.ConnectorKey
	version    name.Version
	connection name.ConnectionID
}

func (id Identity) slot() slot { return slot{id.Connector, id.Version, id.Connection} }

// published is one route: its descriptor, the way to start it, and what runs.
type published struct {
	descriptor Descriptor
	launcher   Launcher
	group      *group

	closed   sync.Once // of the launcher
	closeErr error
}

// Registry holds the current routes of one boot of the host. Its epoch is 128
// random bits, so an identity of an earlier boot never matches. All methods are
// safe for concurrent use. The owner must Close it.
type Registry struct {
	epoch string

	// mu guards everything below. Nothing blocks, calls out or logs under it.
	mu       sync.RWMutex
	number   uint64 // of the newest generation
	current  map[slot]*published
	retiring map[*published]struct{} // fenced; some process of theirs is not closed
	draining map[*published]struct{} // fenced; what runs of them may end by itself
	closed   bool

	routes   revision.Counter // raised under mu, when the set of current routes changes
	activity revision.Counter // raised when anything that Activity shows changes
}

// NewRegistry returns an empty registry with a fresh boot epoch.
func NewRegistry() *Registry {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails: crypto/rand ends the program instead
	return &Registry{
		epoch:    hex.EncodeToString(b[:]),
		current:  make(map[slot]*published),
		retiring: make(map[*published]struct{}),
		draining: make(map[*published]struct{}),
	}
}

// Epoch returns the boot epoch: 32 hexadecimal digits.
func (r *Registry) Epoch() string { return r.epoch }

// Commit publishes d under a new generation, which it sets; d is copied. The
// candidate becomes current first; then the route that it replaces is fenced,
// and its processes are closed until ctx is done. An error after that is about
// the old route alone: the returned descriptor is set and current, and Settle
// tries the rest again. ErrInvalid means that d lacks a field or is out of
// bounds, ErrUnavailable
// that the registry is closed or full; then nothing has changed.
func (r *Registry) Commit(ctx context.Context, d Descriptor, l Launcher) (Descriptor, error) {
	d.Identity.Generation = Generation{}
	if l == nil || !d.Identity.complete() || !d.bounded() {
		return Descriptor{}, fmt.Errorf("commit route: %w", ErrInvalid)
	}
	d.Contract = cloneContract(d.Contract)
	d.Aliases = slices.Clone(d.Aliases)
	d.Probe = cloneProbe(d.Probe)
	next, old, err := r.swap(d, l)
	if err != nil {
		return Descriptor{}, fmt.Errorf("commit route: %w", err)
	}
	return next.descriptor, r.retire(ctx, old)
}

func (r *Registry) swap(d Descriptor, l Launcher) (next, old *published, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := d.Identity.slot()
	old = r.current[at]
	if r.closed || (old == nil && len(r.current) >= MaxRoutes) {
		return nil, nil, ErrUnavailable
	}
	r.number++
	d.Identity.Generation = Generation{Epoch: r.epoch, Number: r.number}
	next = &published{descriptor: d, launcher: l, group: newGroup()}
	next.group.activity = &r.activity
	r.current[at] = next
	r.fence(old)
	r.announce()
	return next, old, nil
}

// Remove retires the current route that has exactly this identity: it stops
// being current, pending starts are refused, and its processes are closed until
// ctx is done. A close that fails is kept, and a second Remove (or Settle) tries
// it again. An identity that is neither current nor retiring is no error: it is
// not there.
func (r *Registry) Remove(ctx context.Context, id Identity) error {
	return r.retire(ctx, r.take(id))
}

func (r *Registry) take(id Identity) *published {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.current[id.slot()]; p != nil && p.descriptor.Identity == id {
		delete(r.current, id.slot())
		r.fence(p)
		r.announce()
		return p
	}
	for p := range r.retiring {
		if p.descriptor.Identity == id {
			return p
		}
	}
	for p := range r.draining {
		if p.descriptor.Identity == id {
			return r.hurry(p)
		}
	}
	return nil
}

// fence makes old refuse every start from now on. mu is held.
func (r *Registry) fence(old *published) {
	if old != nil {
		old.group.fence()
		r.retiring[old] = struct{}{}
	}
}

// announce tells those who wait that the current routes have changed. mu is held.
func (r *Registry) announce() {
	r.routes.Raise()
	r.activity.Raise()
}

// retire closes what a fenced route still runs, and forgets the route once
// nothing of it is left.
func (r *Registry) retire(ctx context.Context, p *published) error {
	if p == nil {
		return nil
	}
	if err := p.group.close(ctx); err != nil {
		id := p.descriptor.Identity
		return fmt.Errorf("close route %s@%s of %s: %w", id.Connector, id.Version, id.Connection, err)
	}
	r.mu.Lock()
	delete(r.retiring, p)
	r.mu.Unlock()
	r.activity.Raise()
	p.closed.Do(func() { p.closeErr = p.launcher.Close() })
	return p.closeErr
}

// Settle tries again to close what retired routes have left running, until ctx
// is done. Nil means that nothing is left.
func (r *Registry) Settle(ctx context.Context) error {
	r.mu.RLock()
	left := make([]*published, 0, len(r.retiring))
	for p := range r.retiring {
		left = append(left, p)
	}
	r.mu.RUnlock()
	errs := make([]error, len(left))
	var wg sync.WaitGroup
	for i, p := range left {
		wg.Go(func() { errs[i] = r.retire(ctx, p) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Close fences all routes, which is a change that watchers see, and closes all their
// processes until ctx is done. It may be called again to retry what it could not close.
func (r *Registry) Close(ctx context.Context) error {
	r.mu.Lock()
	was := r.closed
	r.closed = true
	for at, p := range r.current {
		delete(r.current, at)
		r.fence(p)
	}
	for p := range r.draining {
		r.hurry(p)
	}
	if !was {
		r.announce()
	}
	r.mu.Unlock()
	return r.Settle(ctx)
}
