package outbox

import (
	"errors"
	"io"
	"sync"
	"time"

	"github.com/lendcli/lend/protocol"
)

// Link is what a Box writes to: one run stream of an operation.
type Link interface {
	WriteFrame(f protocol.Frame) error
	WriteData(buf []byte, s protocol.Stream, offset uint64, n int) error
	WriteGrease(number int, payload []byte) error
	CloseWrite() error
	Reset() error
}

// Box is the one of an operation; New makes it, and Send must run until Done.
type Box struct {
	mu   sync.Mutex // guards all below
	wake sync.Cond  // for Send
	room sync.Cond  // for Fill
	link Link       // nil: none at the moment

	taken  [3]uint64 // bytes of the outputs that were taken
	acked  uint64    // how many of both together were acknowledged
	since  time.Time // when that was
	slow   bool      // an acknowledgement is due for the time that went by
	wrote  time.Time // when something was last sent
	beat   bool      // … which is so long ago that an acknowledgement is due
	pad    bool      // what is sent next is a beat; owned by Send
	closed [3]bool   // nobody reads the output
	told   [3]bool   // … and this link has said so

	window *protocol.Window // nil: the operation has no input
	kept   kept             // input from base to window.Sent(), at least
	base   uint64           // the least of what was acknowledged and what this link got
	next   uint64           // the next byte of input to send on this link
	floor  uint64           // what another process had sent
	pass   uint64           // how much of the input to drop for it
	ended  bool             // the input is complete
	said   bool             // … and this link has said so
	deaf   bool             // the child takes no more

	finish bool // send ExitAck and stop
	stop   bool
}

// New returns a Box for an operation with or without input.
func New(input bool) *Box {
	o := &Box{}
	o.wake.L, o.room.L = &o.mu, &o.mu
	if input {
		o.window = protocol.NewWindow(0)
	}
	return o
}

// Use makes send write to l, whose gateway wants the input from stdin on.
// spec: ATTACH-3
func (o *Box) Use(l Link, stdin uint64) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.window != nil && !o.deaf {
		switch {
		case stdin < o.base:
			return errInputGone
		case stdin > o.window.Sent(): // another process sent it, under the same ID
			o.pass, o.floor = stdin-o.window.Sent(), stdin
			o.window, o.base = protocol.NewWindow(stdin), stdin
			o.kept.clear()
		}
		o.next = stdin
	}
	o.link, o.told, o.said = l, [3]bool{}, false
	o.wrote, o.beat = time.Now(), false
	o.acked, o.since, o.slow = o.taken[protocol.Stdout]+o.taken[protocol.Stderr], time.Now(), false
	o.wake.Signal()
	o.room.Signal()
	return nil
}

var errInputGone = errors.New("the gateway wants input that is gone")

// Skip begins the outputs where a gateway's answer says, and returns which of
// them have a hole.
func (o *Box) Skip(a *protocol.Accepted) (holes [3]bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for s, from := range [3]uint64{protocol.Stdout: a.Stdout, protocol.Stderr: a.Stderr} {
		holes[s] = from > o.taken[s]
		o.taken[s] = max(from, o.taken[s])
	}
	return holes
}

// Drop takes l out of use, if it still is.
func (o *Box) Drop(l Link) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.link == l {
		o.link = nil
	}
}

// Ack takes the gateway's count of the input.
func (o *Box) Ack(count uint64) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.ackLocked(count)
}

func (o *Box) ackLocked(count uint64) error {
	switch {
	case o.deaf:
		return nil
	case o.window == nil && count > 0:
		return &protocol.ViolationError{Rule: "FLOW-4", Msg: "acknowledged input that there is not"}
	case o.window == nil, count < o.window.Acked() && count <= o.floor:
		return nil
	}
	if err := o.window.Ack(count); err != nil {
		return err
	}
	o.settle()
	return nil
}

// settle forgets the input that nobody needs again.
func (o *Box) settle() {
	if base := min(o.next, o.window.Acked()); base > o.base {
		o.kept.forget(base)
		o.base = base
	}
	o.room.Signal()
}

// Took counts bytes of an output.
func (o *Box) Took(s protocol.Stream, n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.taken[s] += uint64(n)
	o.slow = o.slow || time.Since(o.since) >= ackAfter
	if o.ackDue() {
		o.wake.Signal()
	}
}

// BeatEvery is how long a caller may be silent: then it acknowledges again, so that
// the gateway knows that it is alive though its reader takes nothing. Where the
// gateway has gone without a word, as over QUIC, its successor answers that with a
// reset. spec: FLOW-6
const BeatEvery = 3 * time.Second

// padding makes a beat larger than the packets (of 42 bytes) that a gateway over QUIC
// answers with no reset.
const padding = 32

// Beat makes Send say something, if it has been silent for BeatEvery.
func (o *Box) Beat() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.link != nil && !o.finish && time.Since(o.wrote) >= BeatEvery {
		o.beat = true
		o.wake.Signal()
	}
}

// Knock says something on l every BeatEvery until done is closed or l is gone: what the
// gateway ignores, for the time before l is in use. Nobody else may write to l.
func Knock(l Link, done <-chan struct{}) {
	tick := time.NewTicker(BeatEvery)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
			if l.WriteGrease(0, make([]byte, padding)) != nil {
				return
			}
		}
	}
}

// Close says that nobody reads an output.
func (o *Box) Close(s protocol.Stream) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed[s] = true
	o.wake.Signal()
}

// Counts returns what was taken of the outputs and which are closed.
func (o *Box) Counts() (taken [3]uint64, closed [3]bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.taken, o.closed
}

// StopInput ends the input early: the child takes no more, or all is over.
// spec: STDIN-3
func (o *Box) StopInput() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stopInput()
}

func (o *Box) stopInput() {
	o.deaf = true
	o.kept.clear()
	o.wake.Signal()
	o.room.Signal()
}

// Fill reads the input until its end, the child's word or stopInput. The error is
// that of r.
func (o *Box) Fill(r io.Reader) error {
	for {
		buf := o.space()
		if len(buf) == 0 {
			return nil
		}
		n, err := r.Read(buf)
		o.add(n, err == io.EOF)
		switch {
		case err == io.EOF:
			return nil
		case err != nil && o.isDeaf():
			return nil // it was interrupted
		case err != nil:
			return err
		}
	}
}

func (o *Box) isDeaf() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.deaf
}

// space waits until input may be read, and returns where to; none means no more.
// spec: FLOW-3
func (o *Box) space() []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	for !o.deaf && (o.window.Room() == 0 || o.held() >= protocol.MaxWindow) {
		o.room.Wait()
	}
	if o.deaf {
		return nil
	}
	return o.kept.space(min(o.window.Room(), protocol.MaxWindow-o.held()))
}

// held is how much of the input is kept.
func (o *Box) held() int { return int(o.window.Sent() - o.base) }

// add takes n bytes that were read into what space returned.
func (o *Box) add(n int, ended bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.deaf {
		return
	}
	passed := int(min(o.pass, uint64(n)))
	o.pass -= uint64(passed)
	o.kept.add(o.window.Sent(), n, passed)
	o.window.Add(n - passed)
	o.ended = ended
	o.wake.Signal()
}

// Done makes send acknowledge the end on l, close the stream and return; nil
// makes it just return.
func (o *Box) Done(l Link) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.link = l
	o.finish, o.stop = l != nil, l == nil
	o.stopInput()
}

// Send writes what is due until Done is called. The errors of a link show when it
// is read.
func (o *Box) Send() {
	for {
		l, f, buf, offset, n := o.due()
		var err error
		switch {
		case l == nil:
			return
		case f == nil:
			err = l.WriteData(buf, 0, offset, n)
		default:
			err = l.WriteFrame(f)
		}
		if o.pad && err == nil {
			err = l.WriteGrease(0, make([]byte, padding))
		}
		o.pad = false
		if err != nil {
			o.Drop(l)
			_ = l.Reset()
		}
		if _, last := f.(*protocol.ExitAck); last {
			if err == nil {
				_ = l.CloseWrite() // whoever waits for the gateway's end resets it
			}
			return
		}
	}
}

// due waits for something to send: a frame, or n bytes of input behind the room for
// their header in buf, which stays as it is until due is called again.
func (o *Box) due() (l Link, f protocol.Frame, buf []byte, offset uint64, n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.kept.sent()
	for {
		if o.stop || o.finish && o.link == nil {
			return nil, nil, nil, 0, 0
		}
		if o.link != nil {
			if f, buf, n = o.pick(); f != nil || n > 0 {
				o.wrote, o.beat, o.pad = time.Now(), false, o.beat
				return o.link, f, buf, o.next - uint64(n), n
			}
		}
		o.wake.Wait()
	}
}

func (o *Box) pick() (f protocol.Frame, buf []byte, n int) {
	for s := protocol.Stdout; s <= protocol.Stderr; s++ {
		if o.closed[s] && !o.told[s] && !o.finish {
			o.told[s] = true
			return &protocol.OutputClosed{Stream: s}, nil, 0
		}
	}
	switch {
	case o.finish:
		return &protocol.ExitAck{}, nil, 0
	case o.ackDue():
		o.acked, o.since, o.slow = o.taken[protocol.Stdout]+o.taken[protocol.Stderr], time.Now(), false
		return &protocol.Ack{Stdout: o.taken[protocol.Stdout], Stderr: o.taken[protocol.Stderr]}, nil, 0
	case o.window == nil || o.deaf:
		return nil, nil, 0
	case o.next < o.window.Sent():
		buf, n = o.kept.frame(o.next)
		o.next += uint64(n)
		o.settle()
		return nil, buf, n
	case o.ended && !o.said:
		o.said = true
		return &protocol.StdinEnd{Total: o.next}, nil, 0
	}
	return nil, nil, 0
}

// ackAfter is how long taken bytes may go without an acknowledgement while others
// come: on a slow line they are all that the gateway sees of the caller, which it
// takes for gone when it has acknowledged nothing for 5 s after the end. spec: END-4.
const ackAfter = time.Second

// ackDue: spec: FLOW-2.
func (o *Box) ackDue() bool {
	return o.slow || o.beat || o.taken[protocol.Stdout]+o.taken[protocol.Stderr]-o.acked >= protocol.AckEvery
}
