package operation

import (
	"io"
	"time"

	"github.com/lendcli/lend/gateway/operation/internal/text"
	"github.com/lendcli/lend/protocol"
)

// ackEvery is how much more input the child has taken when the caller is told.
const ackEvery = protocol.AckEvery

// probeEvery is how often a stream that is not read is written to. Nothing else
// tells that it is gone: only a read or a write does.
const probeEvery = time.Second

// input is what the caller sends to the child. The stream's reader queues it,
// the feeder writes it; a caller that keeps to its window never fills the queue,
// so that frames behind its input are always read.
type input struct {
	pipe        io.WriteCloser // set by Run; nil: the child has none
	wake, space chan struct{}  // for the feeder; for the reader

	// Guarded by Operation.mu.
	queue  []*chunk
	queued uint64      // bytes in queue
	got    uint64      // received
	taken  uint64      // written to the child
	told   uint64      // acknowledged
	ended  bool        // the caller's input is complete
	closed bool        // the child takes no more
	text   text.Stream // what it must be, with Text
}

// takeInput queues payload, which a.Frames has just returned. It blocks while the queue
// is full. An error is a violation.
func (o *Operation) takeInput(a *attachment, payload []byte) error {
	n := uint64(len(payload))
	if !o.awaitRoom(a, n) {
		return nil // the read that follows says so
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	in := &o.in
	switch {
	case o.current != a: // what the other was told as Accepted.stdin holds
		wake(in.space) // it may have been meant for the other
		return errSupplanted
	case !a.Input || in.pipe == nil || in.ended:
		return errUnwanted
	case in.closed:
		in.got += n
		return nil
	case n > o.cfg.Limits.Stdin-in.got: // NoLimit is never reached
		in.got += n
		o.rejectLocked(CauseInputLimit)
		return nil
	case o.cfg.Text && !in.text.Take(payload):
		in.got += n
		o.rejectLocked(CauseInputText)
		return nil
	}
	if !o.cfg.Budget.extend(last(in.queue), payload) {
		in.queue = append(in.queue, o.cfg.Budget.taken(a.Frames, payload))
	}
	in.queued += n
	in.got += n
	wake(in.wake)
	return nil
}

// awaitRoom waits until the queue takes n more bytes, and tells whether it does: the
// stream may be gone first.
func (o *Operation) awaitRoom(a *attachment, n uint64) bool {
	if o.hasRoom(n) {
		return true
	}
	probe := time.NewTicker(probeEvery)
	defer probe.Stop()
	for !o.hasRoom(n) {
		select {
		case <-o.in.space:
		case <-probe.C:
			o.probe(a)
		case <-a.failed:
			return false
		}
	}
	return true
}

func (o *Operation) hasRoom(n uint64) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.in.closed || o.in.queued == 0 || o.in.queued+n <= o.inputRoom()
}

// probe says again what was acknowledged, unless somebody writes to a: that tells as
// well whether it is gone. spec: FLOW-8
func (o *Operation) probe(a *attachment) {
	if !a.mu.TryLock() {
		return
	}
	defer a.mu.Unlock()
	o.mu.Lock()
	told, ours := o.in.told, o.current == a
	o.mu.Unlock()
	if ours {
		o.sendLocked(a, &protocol.Ack{Stdin: told})
	}
}

func (o *Operation) inputRoom() uint64 {
	if o.cfg.Budget.Full() {
		return protocol.MinWindow
	}
	return protocol.MaxWindow
}

// rejectLocked stops the operation because of its input.
func (o *Operation) rejectLocked(c Cause) {
	o.lost = c
	o.dropInputLocked()
	o.cancel(c)
}

// endInput says that the caller's input is complete.
func (o *Operation) endInput(a *attachment, total uint64) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.current != a {
		return errSupplanted
	}
	switch {
	case !a.Input, total != o.in.got, o.in.ended && !a.Attached:
		return errUnwanted
	case o.in.ended:
		return nil // said again, since the caller could not know: spec: ATTACH-3
	}
	o.in.ended = true
	if !o.in.text.Whole() && !o.in.closed {
		o.rejectLocked(CauseInputText)
	}
	wake(o.in.wake)
	return nil
}

// feed writes the queue to the child, closes its input after the last byte, and
// tells the caller how far it is and when the child takes no more. What was dropped has
// no last byte: its end is not shown to the child here.
func (o *Operation) feed() {
	in := &o.in
	for {
		c, more := o.nextInput()
		if c == nil {
			if !more {
				if o.gaveAll() {
					_ = in.pipe.Close()
				}
				return
			}
			<-in.wake
			continue
		}
		n, err := o.writeInput(c.payload())
		if told, closed := o.tookInput(c, n, err); closed {
			o.send(&protocol.StdinClosed{})
		} else if told > 0 {
			o.send(&protocol.Ack{Stdin: told})
		}
	}
}

// writeInput gives bytes to the child. A panic is an error, so that they are accounted
// for.
func (o *Operation) writeInput(b []byte) (n int, err error) {
	err = errFault
	o.guarded(func() { n, err = o.in.pipe.Write(b) })
	return n, err
}

func (o *Operation) nextInput() (c *chunk, more bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	in := &o.in
	if len(in.queue) == 0 {
		return nil, !in.ended && !in.closed
	}
	c, in.queue[0] = in.queue[0], nil
	in.queue = in.queue[1:]
	return c, true
}

// gaveAll tells, when nothing more comes, whether the child has all that there is.
func (o *Operation) gaveAll() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.in.closed
}

// tookInput accounts for n bytes of c. It returns what to tell the caller, and
// whether the child has just closed its end.
func (o *Operation) tookInput(c *chunk, n int, err error) (told uint64, closed bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	in := &o.in
	in.queued -= uint64(len(c.payload()))
	o.cfg.Budget.unref(c)
	in.taken += uint64(n)
	if err != nil {
		closed = !in.closed
		o.dropInputLocked()
		return 0, closed
	}
	wake(in.space)
	if in.taken-in.told < ackEvery {
		return 0, false
	}
	in.told = in.taken
	return in.taken, false
}

// closeInput ends the child's input, whatever is queued.
func (o *Operation) closeInput() {
	o.dropInput()
	if pipe := o.in.pipe; pipe != nil {
		_ = pipe.Close() // ends a write that is under way
	}
}

func (o *Operation) dropInput() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.dropInputLocked()
}

func (o *Operation) dropInputLocked() {
	in := &o.in
	in.closed = true
	for _, c := range in.queue {
		in.queued -= uint64(len(c.payload()))
		o.cfg.Budget.unref(c)
	}
	in.queue = nil
	wake(in.wake)
	wake(in.space)
}
