package operation

import (
	"io"
	"sort"
	"time"

	"github.com/lendcli/lend/protocol"
)

// afterExit is how much more than the window is taken from the pipes once the
// root process has exited: what a pipe can hold, generously.
const afterExit = 1 << 20

// output is one output of the child and what of it is kept.
type output struct {
	stream protocol.Stream
	pipe   io.ReadCloser // set by Run
	wake   chan struct{} // for the pump: there may be space

	// Guarded by Operation.mu.
	chunks []*chunk  // not acknowledged, in order
	base   uint64    // where chunks begin
	end    uint64    // bytes taken from the child
	ended  bool      // the pump has ended
	gone   bool      // the caller reads it no more
	busy   time.Time // since when the pump has not been reading; zero while it reads
}

func (f *output) limit(l protocol.Limits) uint64 {
	if f.stream == protocol.Stdout {
		return l.Stdout
	}
	return l.Stderr
}

// pump takes the output from the child, keeps it and sends it. While the window
// is full, or the stream takes nothing, it does not read: that stops the child.
func (o *Operation) pump(f *output) {
	for o.awaitSpace(f) {
		p, n, err := o.cfg.Budget.pool.Read(f.pipe)
		more := true
		if n > 0 {
			more = o.keep(f, p, n)
			o.flush()
		}
		if err != nil || !more {
			break
		}
	}
	o.pumpEnded(f)
}

func (o *Operation) pumpEnded(f *output) {
	o.mu.Lock()
	f.ended, f.busy = true, time.Time{}
	o.mu.Unlock()
	_ = f.pipe.Close() // nobody reads it any more
}

// awaitSpace waits until f may be read. It is false once nothing more is taken.
func (o *Operation) awaitSpace(f *output) bool {
	for {
		o.mu.Lock()
		if o.sealed || f.gone {
			o.mu.Unlock()
			return false
		}
		if o.spaceLocked() {
			f.busy = time.Time{}
			o.mu.Unlock()
			return true
		}
		if f.busy.IsZero() {
			f.busy = time.Now()
		}
		o.mu.Unlock()
		<-f.wake
	}
}

func (o *Operation) spaceLocked() bool {
	kept := o.out[0].end - o.out[0].base + o.out[1].end - o.out[1].base
	window := o.window
	if o.cfg.Budget.Full() {
		window = min(window, floorWindow)
	}
	if o.exited {
		window += afterExit
	}
	return kept < window
}

// keep adds n bytes that were read into p. It is false if no more will be taken.
func (o *Operation) keep(f *output, p *[]byte, n int) bool {
	b := o.cfg.Budget
	o.mu.Lock()
	defer o.mu.Unlock()
	f.busy = time.Now()
	if o.sealed || f.gone {
		b.pool.Put(p)
		return false
	}
	over := false
	if room := f.limit(o.cfg.Limits) - f.end; uint64(n) > room {
		n, over = int(room), true
	}
	if n > 0 {
		c := last(f.chunks)
		if b.extend(c, (*p)[protocol.DataHeaderMax:][:n]) {
			b.pool.Put(p)
		} else {
			c = b.keep(p, n)
			c.stream, c.offset = f.stream, f.end
			f.chunks = append(f.chunks, c)
		}
		c.start = protocol.PutDataHeader(c.buf, f.stream, c.offset, len(c.payload()))
		f.end += uint64(n)
	} else {
		b.pool.Put(p)
	}
	if over {
		o.lost = CauseOutputLimit
		o.cancel(CauseOutputLimit)
	}
	return !over
}

// ackLocked drops what the caller has of f, up to offset.
func (o *Operation) ackLocked(f *output, offset uint64) {
	if offset <= f.base || f.gone {
		return
	}
	o.grown += offset - f.base
	f.base = offset
	n := sort.Search(len(f.chunks), func(i int) bool { return f.chunks[i].end() > offset })
	for i, c := range f.chunks[:n] {
		o.cfg.Budget.unref(c)
		f.chunks[i] = nil
	}
	f.chunks = f.chunks[n:]
	if o.grown >= o.window && o.window < protocol.MaxWindow && !o.cfg.Budget.Full() {
		o.window, o.grown = min(2*o.window, protocol.MaxWindow), 0
	}
	for i := range o.out {
		wake(o.out[i].wake)
	}
}

// forgetLocked drops what is kept of f and takes no more.
func (o *Operation) forgetLocked(f *output) {
	for _, c := range f.chunks {
		o.cfg.Budget.unref(c)
	}
	f.chunks, f.base = nil, f.end
}

// closeOutput is for a caller that reads f no more: the child's next write to it
// fails as if its reader had gone.
func (o *Operation) closeOutput(a *attachment, s protocol.Stream) error {
	f := &o.out[s-1]
	o.mu.Lock()
	if o.current != a {
		o.mu.Unlock()
		return errSupplanted
	}
	f.gone = true
	o.forgetLocked(f)
	o.mu.Unlock()
	_ = f.pipe.Close() // ends a read that is under way
	for i := range o.out {
		wake(o.out[i].wake)
	}
	return nil
}

// heldByCaller tells whether an open output has waited for the caller, and not
// for the child, for a while.
func (o *Operation) heldByCaller() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range o.out {
		f := &o.out[i]
		if !f.ended && !f.busy.IsZero() && time.Since(f.busy) > o.cfg.Drain/4 {
			return true
		}
	}
	return false
}

// chunkAt returns the chunk of f that holds the byte at offset, nil if it is not
// there yet. The caller holds Operation.mu.
func (f *output) chunkAt(offset uint64) *chunk {
	n := sort.Search(len(f.chunks), func(i int) bool { return f.chunks[i].end() > offset })
	if n == len(f.chunks) {
		return nil
	}
	return f.chunks[n]
}
