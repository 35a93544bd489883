package route

import (
	"context"
	"fmt"
)

// Changed returns a channel that is closed as soon as the set of current routes is
// newer than the revision that was seen; then take a Snapshot. Changes that come
// faster than they are read are one. It needs no end: whoever stops waiting drops
// the channel.
func (r *Registry) Changed(seen uint64) <-chan struct{} { return r.routes.After(seen) }

// Next waits until the set of current routes is newer than the revision that was
// seen, and returns it as Snapshot does; 0 means that none was. Intermediate sets
// may be left out, the newest never is. ErrUnavailable means that the registry is
// closed and nothing newer will come; else the error is ctx's.
func (r *Registry) Next(ctx context.Context, seen uint64) (revision uint64, routes []Descriptor, err error) {
	for {
		changed := r.Changed(seen)
		r.mu.RLock()
		at, all, closed := r.routes.Now(), r.sorted(), r.closed
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
