package width

import "sync/atomic"

const (
	// Bulky is how many bytes go through a pipe until it is widened.
	Bulky = 1 << 20
	// Width is what it then holds, in bytes.
	Width = 256 << 10
	// Most is how many pipes of a Pool are wide at once: what the pipes of one user hold
	// together is bounded, and beyond that new ones hold next to nothing.
	Most = 64
)

// Pool counts the pipes that are wide. The zero value has none. It is safe for
// concurrent use.
type Pool struct{ wide atomic.Int32 }

// Meter counts the bytes that go through one pipe. It belongs to one goroutine.
type Meter struct {
	pool  *Pool
	end   any
	moved int
	tried bool // it was widened, or cannot be
	wide  bool // it counts in pool
}

// Meter begins to count for a pipe, of which end is an end; what is not a pipe is left as
// it is. Close must be called.
func (p *Pool) Meter(end any) Meter { return Meter{pool: p, end: end} }

// Moved counts n bytes, and widens the pipe once they are many.
func (m *Meter) Moved(n int) {
	if m.tried {
		return
	}
	if m.moved += n; m.moved < Bulky {
		return
	}
	if m.pool.wide.Add(1) > Most {
		m.pool.wide.Add(-1)
		m.moved = 0 // there may be room later
		return
	}
	m.tried, m.wide = true, widen(m.end) == nil
	if !m.wide {
		m.pool.wide.Add(-1)
	}
}

// Close says that the pipe is closed, or about to be.
func (m *Meter) Close() {
	if m.wide {
		m.pool.wide.Add(-1)
	}
	m.tried, m.wide = true, false
}
