package protocol

// Window is a sender's account of one direction of an operation: what was sent,
// what the other end has acknowledged, and how much may be on the way. It holds
// no bytes. The zero value is of no use; it belongs to one goroutine or is
// guarded by its owner. spec: FLOW-3
type Window struct {
	sent, acked uint64
	limit       uint64
	grown       uint64 // acked when limit was last doubled
}

// NewWindow returns a window of MinWindow for a direction that continues at
// offset: all before it has been acknowledged.
func NewWindow(offset uint64) *Window {
	return &Window{sent: offset, acked: offset, limit: MinWindow, grown: offset}
}

// Sent and Acked count bytes from the beginning of the direction.
func (w *Window) Sent() uint64 { return w.sent }

// Acked returns how many bytes the other end has acknowledged.
func (w *Window) Acked() uint64 { return w.acked }

// Room returns how many bytes may be sent before the next acknowledgement.
func (w *Window) Room() int { return int(w.limit - (w.sent - w.acked)) }

// Add counts n bytes that were sent, at most Room.
func (w *Window) Add(n int) {
	if n < 0 || n > w.Room() {
		panic("protocol: sent beyond the window")
	}
	w.sent += uint64(n)
}

// Ack takes the other end's count. The window doubles, up to MaxWindow, whenever
// as much as one window has been acknowledged. A count that goes back, or beyond
// what was sent, is a *ViolationError. spec: FLOW-4
func (w *Window) Ack(count uint64) error {
	if count < w.acked || count > w.sent {
		return violation("FLOW-4", "acknowledged bytes that were not sent, or fewer than before")
	}
	w.acked = count
	for w.limit < MaxWindow && w.acked-w.grown >= w.limit {
		w.grown += w.limit
		w.limit *= 2
	}
	return nil
}

// tally is a receiver's account of what one sender has said. It refuses counts
// that do not add up. spec: DATA-3
type tally struct {
	count [3]uint64 // next offset of stream 0, 1 and 2
	acked Ack       // the sender's last acknowledgement
}

// take counts f, which is in order and well formed.
func (t *tally) take(f Frame) *ViolationError {
	switch f := f.(type) {
	case *Attach:
		t.acked = Ack{Stdout: f.Stdout, Stderr: f.Stderr}
	case *Accepted:
		t.acked = Ack{Stdin: f.Stdin}
		t.count[Stdout], t.count[Stderr] = f.Stdout, f.Stderr
	case *Data:
		if f.Offset != t.count[f.Stream] {
			return violation("DATA-3", "data at a wrong offset")
		}
		t.count[f.Stream] += uint64(len(f.Payload))
	case *StdinEnd:
		if f.Total != t.count[0] {
			return violation("STDIN-2", "the input's total is not what was sent")
		}
	case *Ack:
		if f.Stdin < t.acked.Stdin || f.Stdout < t.acked.Stdout || f.Stderr < t.acked.Stderr {
			return violation("FLOW-4", "acknowledged fewer bytes than before")
		}
		t.acked = *f
	case *Exit:
		if f.Stdout < t.count[Stdout] || f.Stderr < t.count[Stderr] {
			return violation("END-2", "the totals are less than what was sent")
		}
	}
	return nil
}
