package route

import (
	"cmp"
	"slices"
)

// Activity is what one route has started and not ended, whether it is current or is
// being retired.
type Activity struct {
	Identity Identity
	// Starting counts starts that have no process yet, Running processes that are not
	// known to be gone: those that ended by themselves count until they are closed.
	Starting, Running int
	// Retiring says that the route is no longer current and that something of it is
	// left, or was a moment ago.
	Retiring bool
	// Draining says that it is being retired by Drain: what runs ends by itself.
	Draining bool
}

// Activity returns what all current and retiring routes have started, sorted by
// identity, and a revision that is raised by every start, every end and every change
// of the routes. What is returned is at least as new as the revision.
func (r *Registry) Activity() (revision uint64, all []Activity) {
	revision = r.activity.Now() // first: what changes meanwhile is announced
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, p := range r.current {
		all = append(all, p.activity())
	}
	for p := range r.retiring {
		a := p.activity()
		a.Retiring = true
		all = append(all, a)
	}
	for p := range r.draining {
		a := p.activity()
		a.Retiring, a.Draining = true, true
		all = append(all, a)
	}
	slices.SortFunc(all, func(a, b Activity) int {
		return cmp.Or(order(a.Identity, b.Identity), cmp.Compare(a.Identity.Generation.Number, b.Identity.Generation.Number))
	})
	return revision, all
}

// ActivityChanged is Changed for the revision of Activity.
func (r *Registry) ActivityChanged(seen uint64) <-chan struct{} { return r.activity.After(seen) }

func (p *published) activity() Activity {
	p.group.mu.Lock()
	defer p.group.mu.Unlock()
	return Activity{
		Identity: p.descriptor.Identity, Starting: len(p.group.pending), Running: len(p.group.owned),
	}
}
