package turn

import "sync"

// Turn is a mutex for what may last. On a simulated clock, who waits for it counts
// as waiting, which nobody does at a sync.Mutex.
type Turn struct {
	mu    sync.Mutex // guards taken
	cond  sync.Cond
	taken bool
}

// Lock waits for its turn.
func (t *Turn) Lock() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cond.L = &t.mu
	for t.taken {
		t.cond.Wait()
	}
	t.taken = true
}

// TryLock takes the turn if nobody has it, and tells whether it did.
func (t *Turn) TryLock() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.taken {
		return false
	}
	t.taken = true
	return true
}

// Unlock lets the next one.
func (t *Turn) Unlock() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.taken = false
	t.cond.Signal()
}
