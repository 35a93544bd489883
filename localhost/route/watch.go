package route

import (
	"context"
	"fmt"
	"sync"
)

// notice is a revision that others wait for. It holds no queue and no list of those
// who wait, so a slow one costs nothing and misses nothing: it finds the newest
// state. The zero value is ready; a nil notice is told in vain. Its lock is a leaf.
type notice struct {
	mu       sync.Mutex
	revision uint64
	changed  chan struct{} // nil until somebody waits; closed and dropped by raise
}

// raise says that something has changed. What changed is visible already.
func (n *notice) raise() {
	if n == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.revision++
	if n.changed != nil {
		close(n.changed)
		n.changed = nil
	}
}

func (n *notice) now() uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.revision
}

// after returns a channel that is closed as soon as the revision is above seen.
func (n *notice) after(seen uint64) <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.revision > seen {
		closed := make(chan struct{})
		close(closed)
		return closed
	}
	if n.changed == nil {
		n.changed = make(chan struct{})
	}
	return n.changed
}

// Changed returns a channel that is closed as soon as the set of current routes is
// newer than the revision that was seen; then take a Snapshot. Changes that come
// faster than they are read are one. It needs no end: whoever stops waiting drops
// the channel.
func (r *Registry) Changed(seen uint64) <-chan struct{} { return r.routes.after(seen) }

// Next waits until the set of current routes is newer than the revision that was
// seen, and returns it as Snapshot does; 0 means that none was. Intermediate sets
// may be left out, the newest never is. ErrUnavailable means that the registry is
// closed and nothing newer will come; else the error is ctx's.
func (r *Registry) Next(ctx context.Context, seen uint64) (revision uint64, routes []Descriptor, err error) {
	for {
		changed := r.Changed(seen)
		r.mu.RLock()
		at, all, closed := r.routes.now(), r.sorted(), r.closed
		r.mu.RUnlock()
		switch {
		case at > seen:
			return at, all, nil
		case closed:
			return at, nil, fmt.Errorf("watch routes: %w", ErrUnavailable)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return seen, nil, fmt.Errorf("watch routes: %w", context.Cause(ctx))
		}
	}
}
