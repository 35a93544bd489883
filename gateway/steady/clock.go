package steady

import (
	"sync"
	"time"
)

// Clock is safe for concurrent use.
type Clock struct {
	wall    func() time.Time
	elapsed func() time.Duration // of the machine, from some moment on

	mu   sync.Mutex // guards all that follows
	high time.Time  // the latest that was said …
	at   time.Duration
}

// New returns a clock over wall that says nothing before high.
func New(wall func() time.Time, high time.Time) *Clock { return Over(wall, Stopwatch(), high) }

// Over is New with another time of the machine than Stopwatch.
func Over(wall func() time.Time, elapsed func() time.Duration, high time.Time) *Clock {
	return &Clock{wall: wall, elapsed: elapsed, high: high.Round(0), at: elapsed()}
}

// Now is the time. It has no monotonic reading.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	t, at := c.wall().Round(0), c.elapsed()
	// The machine's time may begin anew, and a clock may be read just before another
	// reads both: what was said holds.
	if least := c.high.Add(max(0, at-c.at)); t.Before(least) {
		t = least
	}
	c.high, c.at = t, at
	return t
}
