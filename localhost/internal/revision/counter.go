package revision

import "sync"

// Counter is a revision that others wait for. The zero value is ready; a nil Counter
// is told in vain. All methods are safe for concurrent use, and its lock is a leaf:
// nothing is called under it.
type Counter struct {
	mu      sync.Mutex
	now     uint64
	changed chan struct{} // nil until somebody waits; closed and dropped by Raise
}

// Raise says that something has changed, which can be seen already, and returns the
// new revision.
func (c *Counter) Raise() uint64 {
	if c == nil {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now++
	if c.changed != nil {
		close(c.changed)
		c.changed = nil
	}
	return c.now
}

// Now is the revision: 0 before the first change.
func (c *Counter) Now() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// After returns a channel that is closed as soon as the revision is above seen.
// Whoever stops waiting drops it.
func (c *Counter) After(seen uint64) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.now > seen {
		closed := make(chan struct{})
		close(closed)
		return closed
	}
	if c.changed == nil {
		c.changed = make(chan struct{})
	}
	return c.changed
}
