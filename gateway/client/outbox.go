package client

import (
	"errors"
	"io"
	"sync"
	"time"

	"github.com/lendcli/lend/protocol"
)

// link is one run stream of an operation.
type link struct {
	s *stream
	r *protocol.Reader
	w *protocol.Writer
}

func newLink(s *stream) *link {
	return &link{s: s, r: protocol.NewReader(s, protocol.Caller), w: protocol.NewWriter(s)}
}

func (l *link) reset() { _ = l.s.Reset() }

// outbox is all that an operation sends after its first frame. One goroutine
// (send) writes, so that the one that reads never waits for a write: both ends
// could wait for each other otherwise. What was sent and not acknowledged is
// kept, so that another stream can go on with it.
type outbox struct {
	mu   sync.Mutex // guards all below
	wake sync.Cond
	link *link // nil: none at the moment

	taken  [3]uint64 // bytes of the outputs that were taken
	acked  uint64    // how many of both together were acknowledged
	closed [3]bool   // nobody reads the output
	told   [3]bool   // … and this link has said so

	window *protocol.Window // nil: the operation has no input
	kept   []byte           // input from base to window.Sent()
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

func newOutbox(input bool) *outbox {
	o := &outbox{}
	o.wake.L = &o.mu
	if input {
		o.window = protocol.NewWindow(0)
	}
	return o
}

// use makes send write to l, whose gateway wants the input from stdin on.
// spec: ATTACH-3
func (o *outbox) use(l *link, stdin uint64) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.window != nil && !o.deaf {
		switch {
		case stdin < o.base:
			return errInputGone
		case stdin > o.window.Sent(): // another process sent it, under the same ID
			o.pass, o.floor = stdin-o.window.Sent(), stdin
			o.window, o.kept, o.base = protocol.NewWindow(stdin), nil, stdin
		}
		o.next = stdin
	}
	o.link, o.told, o.said = l, [3]bool{}, false
	o.acked = o.taken[protocol.Stdout] + o.taken[protocol.Stderr]
	o.wake.Broadcast()
	return nil
}

var errInputGone = errors.New("the gateway wants input that is gone")

// skip begins the outputs where a gateway's answer says, and returns which of
// them have a hole.
func (o *outbox) skip(a *protocol.Accepted) (holes [3]bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for s, from := range [3]uint64{protocol.Stdout: a.Stdout, protocol.Stderr: a.Stderr} {
		holes[s] = from > o.taken[s]
		o.taken[s] = max(from, o.taken[s])
	}
	return holes
}

// drop takes l out of use, if it still is.
func (o *outbox) drop(l *link) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.link == l {
		o.link = nil
	}
}

// ack takes the gateway's count of the input.
func (o *outbox) ack(count uint64) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.ackLocked(count)
}

func (o *outbox) ackLocked(count uint64) error {
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
func (o *outbox) settle() {
	if base := min(o.next, o.window.Acked()); base > o.base {
		o.kept = o.kept[:copy(o.kept, o.kept[base-o.base:])]
		o.base = base
	}
	o.wake.Broadcast()
}

// took counts bytes of an output.
func (o *outbox) took(s protocol.Stream, n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.taken[s] += uint64(n)
	if o.ackDue() {
		o.wake.Broadcast()
	}
}

// close says that nobody reads an output.
func (o *outbox) close(s protocol.Stream) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed[s] = true
	o.wake.Broadcast()
}

// counts returns what was taken of the outputs and which are closed.
func (o *outbox) counts() (taken [3]uint64, closed [3]bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.taken, o.closed
}

// stopInput ends the input early: the child takes no more, or all is over.
// spec: STDIN-3
func (o *outbox) stopInput() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.deaf, o.kept = true, nil
	o.wake.Broadcast()
}

// fill reads the input until its end, the child's word or stopInput. The error is
// that of r.
func (o *outbox) fill(r io.Reader) error {
	buf := make([]byte, 32<<10)
	for {
		room := o.room()
		if room == 0 {
			return nil
		}
		n, err := r.Read(buf[:min(room, len(buf))])
		o.add(buf[:n], err == io.EOF)
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

func (o *outbox) isDeaf() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.deaf
}

// room waits until input may be read, and returns how much; 0 means no more.
// spec: FLOW-3
func (o *outbox) room() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	for !o.deaf && (o.window.Room() == 0 || len(o.kept) >= protocol.MaxWindow) {
		o.wake.Wait()
	}
	if o.deaf {
		return 0
	}
	return min(o.window.Room(), protocol.MaxWindow-len(o.kept))
}

func (o *outbox) add(b []byte, ended bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.deaf {
		return
	}
	passed := min(o.pass, uint64(len(b)))
	o.pass -= passed
	b = b[passed:]
	o.window.Add(len(b))
	o.kept = append(o.kept, b...)
	o.ended = ended
	o.settle()
}

// done makes send acknowledge the end on l, close the stream and return; nil
// makes it just return.
func (o *outbox) done(l *link) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.link = l
	o.finish, o.stop = l != nil, l == nil
	o.deaf, o.kept = true, nil
	o.wake.Broadcast()
}

// send writes what is due until done is called. The errors of a link show when it
// is read.
func (o *outbox) send() {
	var buf []byte
	for {
		l, f, n := o.due(&buf)
		var err error
		switch {
		case l == nil:
			return
		case f == nil:
			err = l.w.WriteData(buf, 0, o.offset(n), n)
		default:
			err = l.w.WriteFrame(f)
		}
		if err != nil {
			o.drop(l)
			l.reset()
		}
		if _, last := f.(*protocol.ExitAck); last {
			if err == nil {
				_ = l.s.CloseWrite() // whoever waits for the gateway's end resets it
			}
			return
		}
	}
}

// offset returns where n bytes began that due has counted already.
func (o *outbox) offset(n int) uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.next - uint64(n)
}

// due waits for something to send: a frame, or n bytes of input in buf.
func (o *outbox) due(buf *[]byte) (l *link, f protocol.Frame, n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for {
		if o.stop || o.finish && o.link == nil {
			return nil, nil, 0
		}
		if o.link != nil {
			if f, n = o.pick(buf); f != nil || n > 0 {
				return o.link, f, n
			}
		}
		o.wake.Wait()
	}
}

func (o *outbox) pick(buf *[]byte) (protocol.Frame, int) {
	for s := protocol.Stdout; s <= protocol.Stderr; s++ {
		if o.closed[s] && !o.told[s] && !o.finish {
			o.told[s] = true
			return &protocol.OutputClosed{Stream: s}, 0
		}
	}
	switch {
	case o.finish:
		return &protocol.ExitAck{}, 0
	case o.ackDue():
		o.acked = o.taken[protocol.Stdout] + o.taken[protocol.Stderr]
		return &protocol.Ack{Stdout: o.taken[protocol.Stdout], Stderr: o.taken[protocol.Stderr]}, 0
	case o.window == nil || o.deaf:
		return nil, 0
	case o.next < o.window.Sent():
		if *buf == nil {
			*buf = make([]byte, protocol.DataHeaderMax+protocol.MaxData)
		}
		n := copy((*buf)[protocol.DataHeaderMax:], o.kept[o.next-o.base:])
		o.next += uint64(n)
		o.settle()
		return nil, n
	case o.ended && !o.said:
		o.said = true
		return &protocol.StdinEnd{Total: o.next}, 0
	}
	return nil, 0
}

// ackDue: spec: FLOW-2.
func (o *outbox) ackDue() bool {
	return o.taken[protocol.Stdout]+o.taken[protocol.Stderr]-o.acked >= protocol.AckEvery
}

// interrupt makes a blocked Read of r return, if it can: then done is awaited.
func interrupt(r io.Reader, done <-chan struct{}) {
	type deadliner interface{ SetReadDeadline(t time.Time) error }
	switch r := r.(type) {
	case *io.PipeReader:
		_ = r.CloseWithError(errInputOver)
	case deadliner:
		if r.SetReadDeadline(time.Unix(1, 0)) != nil {
			return // a file that cannot: its Read ends when it will
		}
		<-done
		_ = r.SetReadDeadline(time.Time{})
		return
	default:
		if !inMemory(r) {
			return
		}
	}
	<-done
}

var errInputOver = errors.New("the command takes no more input")
