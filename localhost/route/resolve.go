package route

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
)

// Resolve returns the one current route that matches q. The version is exact. It
// is ErrNotFound where none matches and ErrAmbiguous where q names no connection
// and several have the Connector.
func (r *Registry) Resolve(q Query) (Descriptor, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if !q.Connection.IsZero() {
		if p := r.current[slot{q.Connector, q.Version, q.Connection}]; p != nil {
			return p.descriptor, nil
		}
		return Descriptor{}, ErrNotFound
	}
	var found *published
	for at, p := range r.current {
		if at.connector != q.Connector || at.version != q.Version {
			continue
		}
		if found != nil {
			return Descriptor{}, ErrAmbiguous
		}
		found = p
	}
	if found == nil {
		return Descriptor{}, ErrNotFound
	}
	return found.descriptor, nil
}

// Snapshot returns all current routes, sorted by Connector, version and
// connection, and the revision of that set. Every change raises the revision.
func (r *Registry) Snapshot() (revision uint64, routes []Descriptor) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.routes.Now(), r.sorted()
}

// sorted lists the current routes. mu is held.
func (r *Registry) sorted() []Descriptor {
	all := make([]Descriptor, 0, len(r.current))
	for _, p := range r.current {
		all = append(all, p.descriptor)
	}
	slices.SortFunc(all, func(a, b Descriptor) int { return order(a.Identity, b.Identity) })
	return all
}

// order sorts by Connector, version and connection.
func order(a, b Identity) int {
	return cmp.Or(
		strings.Compare(a.Connector.String(), b.Connector.String()),
		strings.Compare(a.Version.String(), b.Version.String()),
		strings.Compare(a.Connection.String(), b.Connection.String()),
	)
}

// StartCLI starts the CLI of the current route whose identity equals q.Identity
// in every field; otherwise it is ErrIdentityMismatch, and the launcher is not
// called. ErrUnavailable means that the route was fenced first, or could not
// start. An error means that nothing ran, and nothing will: when ctx is done before
// the transport has the start, StartCLI returns at once; afterwards the
// transport's answer counts. A route that is fenced in that moment has a process
// that ran, so it is returned, and retired at once. After StartCLI has returned,
// ctx has no effect on the process.
func (r *Registry) StartCLI(ctx context.Context, q StartCLIRequest) (*CLIConnection, error) {
	if q.WorkingDirectory == "" {
		return nil, errDirectory
	}
	p, err := r.prepare(ctx, q)
	if err != nil {
		return nil, err
	}
	return p.start(ctx)
}

// Prepare readies what StartCLI would start, in a goroutine that the route waits
// for, and returns at once. The errors are ErrInvalid, ErrIdentityMismatch,
// ErrUnavailable and ctx's own: then nothing is prepared. What goes wrong later is
// told by Start. q.WorkingDirectory may be "": a private directory of the start.
func (r *Registry) Prepare(ctx context.Context, q StartCLIRequest) (Prepared, error) {
	p, err := r.prepare(ctx, q)
	if err != nil {
		return nil, err
	}
	return p, nil
}

func (r *Registry) prepare(ctx context.Context, q StartCLIRequest) (*pending, error) {
	if err := q.check(); err != nil {
		return nil, err
	}
	p, err := r.exact(q.Identity)
	if err != nil {
		return nil, err
	}
	return p.group.prepare(ctx, func(ctx context.Context) (Starter, error) {
		return p.launcher.Prepare(ctx, q)
	})
}

func (r *Registry) exact(id Identity) (*published, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if r.closed {
		return nil, fmt.Errorf("host is closed: %w", ErrUnavailable)
	}
	p := r.current[id.slot()]
	if p == nil || p.descriptor.Identity != id {
		return nil, ErrIdentityMismatch
	}
	return p, nil
}
