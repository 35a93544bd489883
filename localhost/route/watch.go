package route

import "sync"

// watchBuffer is how many events a Watcher may fall behind.
const watchBuffer = 64

// Event is one change of the set of current routes. Published is the route that
// became current, Retired the one that stopped being it; a replacement has both.
type Event struct {
	Revision  uint64
	Published *Descriptor
	Retired   *Identity
}

// Watcher receives the changes that come after the snapshot it was made with.
// It is closed, and C with it, when it falls 64 events behind or the registry
// closes: take a new snapshot then. C is read by one goroutine.
type Watcher struct {
	C <-chan Event

	events   chan Event
	registry *Registry
	closed   sync.Once
}

// Watch returns all current routes, sorted as Snapshot does, and a Watcher of
// every later change; none is lost between the two. The caller must Close it.
func (r *Registry) Watch() ([]Descriptor, *Watcher) {
	r.mu.Lock()
	defer r.mu.Unlock()
	events := make(chan Event, watchBuffer)
	w := &Watcher{C: events, events: events, registry: r}
	if r.closed {
		r.drop(w)
	} else {
		r.watchers[w] = struct{}{}
	}
	return r.sorted(), w
}

// Close ends the watcher and C. It is idempotent.
func (w *Watcher) Close() {
	w.registry.mu.Lock()
	defer w.registry.mu.Unlock()
	w.registry.drop(w)
}

// drop closes w. mu is held, so nobody is sending.
func (r *Registry) drop(w *Watcher) {
	delete(r.watchers, w)
	w.closed.Do(func() { close(w.events) })
}

// announce raises the revision and tells the watchers. mu is held.
func (r *Registry) announce(now *Descriptor, old *published) {
	r.revision++
	e := Event{Revision: r.revision, Published: now}
	if old != nil {
		e.Retired = &old.descriptor.Identity
	}
	for w := range r.watchers {
		select {
		case w.events <- e:
		default:
			r.drop(w)
		}
	}
}
