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

// Box is the one of an operation; New makes it, and Done must be called in the end.
type Box struct {
	sender sync.WaitGroup // send, in a goroutine

	mu      sync.Mutex // guards all below
	wake    sync.Cond  // for send
	room    sync.Cond  // for Fill
	link    Link       // nil: none at the moment
	mute    bool       // … and it has not answered: it gets nothing but knocks
	sending bool       // sender was needed
	still   func()     // ends the beats; nil: there are none

	taken  [3]uint64 // bytes of the outputs that were taken
	acked  uint64    // how many of both together were acknowledged
	since  time.Time // when that was
	slow   bool      // an acknowledgement is due for the time that went by
	wrote  time.Time // when something was last sent
	beat   bool      // … which is so long ago that an acknowledgement is due
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

// letter is one thing to send: a frame, n bytes of input behind the room for their
// header in buf, or what is ignored; with pad that follows the frame.
type letter struct {
	to     Link // nil: nothing is to be sent any more
	frame  protocol.Frame
	buf    []byte
	offset uint64
	n      int
	pad    bool
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

// Await says that l was asked for the operation and has not answered. Until Use nothing
// is sent there but what the gateway ignores, after each BeatEvery: one that was killed is
// silent.
func (o *Box) Await(l Link) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.link, o.mute = l, true
	o.begin()
}

// begin counts the silence on a link that was just written to.
func (o *Box) begin() {
	o.wrote, o.beat = time.Now(), false
	if o.still == nil {
		o.still = repeat(BeatEvery, o.keepAlive)
	}
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
	o.link, o.mute, o.told, o.said = l, false, [3]bool{}, false
	o.begin()
	o.acked, o.since, o.slow = o.taken[protocol.Stdout]+o.taken[protocol.Stderr], o.wrote, false
	o.need()
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
		o.need()
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

// keepAlive makes send say something if it has been silent for BeatEvery, and returns
// after what time to look again.
func (o *Box) keepAlive() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.link == nil || o.finish {
		return BeatEvery
	}
	if left := BeatEvery - time.Since(o.wrote); left > 0 {
		return left
	}
	o.beat = true
	o.need()
	return BeatEvery
}

// Close says that nobody reads an output.
func (o *Box) Close(s protocol.Stream) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed[s] = true
	o.need()
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
	o.need()
}

// Done ends the Box: it acknowledges the end on l and closes the stream; nil sends
// nothing more. When it returns nothing is being sent. A link that is stuck must have a
// deadline or be reset.
func (o *Box) Done(l Link) {
	o.mu.Lock()
	o.link, o.mute = l, false
	o.finish, o.stop = l != nil, l == nil
	o.stopInput()
	still, alone := o.still, !o.sending
	o.wake.Signal()
	o.mu.Unlock()
	if alone && l != nil {
		o.send(letter{to: l, frame: &protocol.ExitAck{}})
	}
	o.sender.Wait()
	if still != nil {
		still()
	}
}

// need makes send write what is due. It begins with the first: an operation that has
// nothing to say has no goroutine for it.
func (o *Box) need() {
	if o.sending {
		o.wake.Signal()
		return
	}
	if o.stop || o.finish {
		return
	}
	if first, ok := o.pick(); ok {
		o.sending = true
		o.sender.Go(func() { o.send(first) })
	}
}

// send writes m and what is due after it until Done is called. The errors of a link show
// when it is read.
func (o *Box) send(m letter) {
	for ; m.to != nil; m = o.due() {
		var err error
		switch {
		case m.n > 0:
			err = m.to.WriteData(m.buf, 0, m.offset, m.n)
		case m.frame != nil:
			err = m.to.WriteFrame(m.frame)
		}
		if m.pad && err == nil {
			err = m.to.WriteGrease(0, make([]byte, padding))
		}
		if err != nil {
			o.Drop(m.to)
			_ = m.to.Reset()
		}
		if _, last := m.frame.(*protocol.ExitAck); last {
			if err == nil {
				_ = m.to.CloseWrite() // whoever waits for the gateway's end resets it
			}
			return
		}
	}
}

// due waits for something to send; a buffer stays as it is until due is called again.
func (o *Box) due() letter {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.kept.sent()
	for {
		if o.stop || o.finish && o.link == nil {
			return letter{}
		}
		if m, ok := o.pick(); ok {
			return m
		}
		o.wake.Wait()
	}
}

// pick returns what is due, if anything is: then it counts as sent.
func (o *Box) pick() (m letter, ok bool) {
	if o.link == nil {
		return letter{}, false
	}
	m = letter{to: o.link, pad: o.beat && !o.finish}
	if !o.mute {
		m.frame, m.buf, m.n = o.content()
		m.offset = o.next - uint64(m.n)
	}
	if m.frame == nil && m.n == 0 && !m.pad {
		return letter{}, false
	}
	o.wrote, o.beat = time.Now(), false
	return m, true
}

func (o *Box) content() (f protocol.Frame, buf []byte, n int) {
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
