package route

// Drain retires the current route that has exactly this identity and lets what runs
// of it end by itself: it stops being current, starts are refused and those that
// nothing runs of yet are cancelled, but no process is closed. The launcher is closed
// when the last process has been. Remove, and Close of the registry, end what is
// left at once; Settle leaves it alone. False means that the route is not current.
func (r *Registry) Drain(id Identity) bool {
	p := r.leave(id)
	if p == nil {
		return false
	}
	p.group.drain(func() { r.drained(p) })
	return true
}

// Draining returns the identities of the routes that Drain retired and of which
// something still runs.
func (r *Registry) Draining() []Identity {
	r.mu.RLock()
	defer r.mu.RUnlock()
	out := make([]Identity, 0, len(r.draining))
	for p := range r.draining {
		out = append(out, p.descriptor.Identity)
	}
	return out
}

func (r *Registry) leave(id Identity) *published {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.current[id.slot()]
	if p == nil || p.descriptor.Identity != id {
		return nil
	}
	delete(r.current, id.slot())
	r.draining[p] = struct{}{}
	r.announce()
	return p
}

// drained is called once, when nothing of a draining route runs any more.
func (r *Registry) drained(p *published) {
	r.mu.Lock()
	_, mine := r.draining[p] // else Remove or Close has taken it, and does the rest
	delete(r.draining, p)
	r.mu.Unlock()
	if !mine {
		return
	}
	p.closed.Do(func() { p.closeErr = p.launcher.Close() })
	if p.closeErr != nil {
		r.mu.Lock()
		r.retiring[p] = struct{}{} // Settle says so
		r.mu.Unlock()
	}
	r.activity.Raise()
}

// hurry moves a draining route to those that are closed at once. mu is held.
func (r *Registry) hurry(p *published) *published {
	delete(r.draining, p)
	r.fence(p)
	return p
}

// drain fences the group; empty is called once when it owns nothing and nothing is
// pending, perhaps at once.
func (g *group) drain(empty func()) {
	g.fence()
	g.dropPrepared()
	g.mu.Lock()
	g.empty = empty
	f := g.emptied()
	g.mu.Unlock()
	f()
}

// emptied returns what is to be called, without the lock, after something was taken
// from the group. mu is held.
func (g *group) emptied() func() {
	f := g.empty
	if f == nil || len(g.pending)+len(g.owned) > 0 {
		return func() {}
	}
	g.empty = nil
	return f
}
