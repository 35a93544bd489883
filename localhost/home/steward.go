package home

import (
	"context"
	"crypto/rand"
	"os"
	"path/filepath"
	"time"
)

// tidy looks at rooms after their use, until Close.
func (r *Rooms) tidy() {
	for {
		select {
		case j := <-r.used:
			if j.room != nil {
				r.sort(j.room)
			} else {
				close(j.told)
			}
		case <-r.stop:
			return // what is left goes with the directory
		}
	}
}

// sort keeps a room that is as it was handed out, and removes every other.
func (r *Rooms) sort(m *room) {
	untouched := m.keep && m.sound && m.own.untouched(m.path) && r.rename(m)
	if r.back(m, untouched) {
		return
	}
	err := r.remove(m)
	r.mu.Lock()
	m.pool.out--
	r.wake() // another is wanted in its place
	r.mu.Unlock()
	if err != nil {
		r.problem(err)
	}
}

// rename gives a room another path: who has had it knows the old one.
func (r *Rooms) rename(m *room) bool {
	path := filepath.Join(r.dir, rand.Text())
	if os.Rename(m.path, path) != nil {
		return false
	}
	m.path = path
	return true
}

// back puts a room back into its pool; false if it has to go, and is still out till then.
func (r *Rooms) back(m *room, untouched bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m.keep {
		m.pool.again--
	}
	m.keep = false
	if !untouched || !r.keep(m) {
		return false
	}
	m.pool.out--
	return true
}

// keep puts a room into its pool, if that has space. mu is held.
func (r *Rooms) keep(m *room) bool {
	if m.pool.gone || len(m.pool.rooms) >= max(m.pool.target, 1) || r.kept >= mostRooms {
		return false
	}
	m.pool.rooms = append(m.pool.rooms, m)
	r.kept++
	return true
}

// fill makes rooms ahead, and looks for copies whose baseline has changed, until Close.
func (r *Rooms) fill() {
	for {
		if p := r.lacking(); p != nil {
			r.ahead(p)
			continue
		}
		var look <-chan time.Time
		if r.anyCopies() {
			look = time.After(staleAfter)
		}
		select {
		case <-r.stop:
			return
		case <-r.kick:
		case <-look:
			r.dropStale()
		}
	}
}

// lacking returns a pool that wants one more room.
func (r *Rooms) lacking() *pool {
	select {
	case <-r.stop:
		return nil
	default:
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.plain.lacks() {
		return r.plain
	}
	if r.kept < mostRooms {
		for _, p := range r.homes {
			if p.lacks() {
				return p
			}
		}
	}
	return nil
}

func (p *pool) lacks() bool { return len(p.rooms)+p.again < p.target }

// ahead makes one room more. If that fails, nothing is made ahead until the next miss;
// who needs one then is told why.
func (r *Rooms) ahead(p *pool) {
	p.filling.Lock()
	defer p.filling.Unlock()
	r.mu.Lock()
	gone := p.gone // since it was chosen: Forget does not wait for what has not begun
	r.mu.Unlock()
	if gone {
		return
	}
	m := r.furnishAhead(p)
	r.mu.Lock()
	kept := m != nil && m.sound && r.keep(m)
	if !kept {
		p.target = len(p.rooms) + p.again
	}
	r.mu.Unlock()
	if kept || m == nil {
		return
	}
	if err := r.remove(m); err != nil {
		r.problem(err)
	}
}

func (r *Rooms) furnishAhead(p *pool) *room {
	if p.hold != nil {
		held, err := p.hold()
		if err != nil {
			return nil
		}
		defer func() { _ = held.Close() }() // closing lets go
	}
	m, err := r.furnish(context.Background(), p) // a copy has bounds
	if err != nil {
		return nil
	}
	return m
}

func (r *Rooms) anyCopies() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.kept > len(r.plain.rooms)
}

// dropStale removes copies of what has changed since, or is not there any more.
func (r *Rooms) dropStale() {
	r.mu.Lock()
	var all []*room
	for _, p := range r.homes {
		all = append(all, p.rooms...)
	}
	r.mu.Unlock()
	for _, m := range all {
		if m.base.same(nowhere) || !r.pull(m) {
			continue
		}
		if err := r.remove(m); err != nil {
			r.problem(err)
		}
	}
}

// pull takes a room that waits out of its pool; false if it is not there any more.
func (r *Rooms) pull(m *room) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, other := range m.pool.rooms {
		if other == m {
			m.pool.rooms = append(m.pool.rooms[:i], m.pool.rooms[i+1:]...)
			r.kept--
			m.pool.target = 0 // until the next miss
			return true
		}
	}
	return false
}

// Forget removes every copy of from that waits, or was given back, and returns when none
// is left. What is in use goes when it is returned.
func (r *Rooms) Forget(from Dirs) {
	r.mu.Lock()
	p := r.homes[from.Home]
	delete(r.homes, from.Home)
	if p == nil {
		r.mu.Unlock()
		return
	}
	p.gone = true
	rooms := p.rooms
	p.rooms = nil
	r.kept -= len(rooms)
	r.mu.Unlock()
	p.filling.Lock()   // a copy that is just being made is removed by who makes it
	p.filling.Unlock() //nolint:staticcheck // waited for
	for _, m := range rooms {
		if err := r.remove(m); err != nil {
			r.problem(err)
		}
	}
	told := make(chan struct{})
	select {
	case r.used <- job{told: told}:
	case <-r.stop:
		return
	}
	select {
	case <-told:
	case <-r.stop:
	}
}

// Close stops the making and removing, and waits for it. It is idempotent. What is left
// goes with the directory, which the caller removes.
func (r *Rooms) Close() {
	r.once.Do(func() { close(r.stop) })
	r.done.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.plain.rooms, r.homes, r.kept = nil, make(map[string]*pool), 0 // whoever still asks finds no directory
}
