package operation

import (
	"errors"
	"io"
	"sync"
	"time"

	"github.com/lendcli/lend/gateway/operation/internal/turn"
	"github.com/lendcli/lend/localhost/failpoint"
	"github.com/lendcli/lend/protocol"
)

// Errors of Serve that leave the stream as it was, to be answered by the caller.
var (
	// ErrBusy: another stream is attached and this one may not supplant it.
	ErrBusy = errors.New("another stream is attached")
	// ErrSettled: nothing is kept of the operation any more.
	ErrSettled = errors.New("nothing is kept of the operation")
	// ErrBeyond: the caller claims to have more output than there was.
	ErrBeyond = errors.New("attach beyond the output")
)

var (
	errUnwanted   = errors.New("frame not wanted now")
	errSupplanted = errors.New("another stream has taken over")
	errFault      = errors.New("a fault while a stream was served")
)

// Stream is what the operation does with the stream of a session besides frames.
type Stream interface {
	io.Writer
	io.Closer
	SetReadDeadline(time.Time) error
	SetWriteDeadline(time.Time) error
}

// Session is one stream whose first frame was read and that is to be answered by
// Accepted.
type Session struct {
	Stream Stream
	Frames *protocol.Reader
	Writer *protocol.Writer
	// Reset aborts the stream with a code; it is safe at any time.
	Reset func(protocol.Code)
	// Attached is false for the stream whose Start began the operation.
	Attached bool
	// Input tells that the caller showed the token, or started the operation. It
	// may send input and supplant another stream.
	Input bool
	// Stdout and Stderr are the bytes that the caller has.
	Stdout, Stderr uint64
}

type attachment struct {
	Session
	failed chan struct{} // closed by fail
	once   sync.Once

	mu    turn.Turn // held while frames are written
	next  [2]uint64 // offsets to send, by Stream-1; guarded by Operation.mu
	beats bool      // it acknowledges again while it is silent; guarded by Operation.mu
	last  bool      // Exit was written; guarded by mu
	// closed: StdinClosed was written, after which nothing is said about input;
	// guarded by mu.
	closed bool
}

// fail aborts the stream; whoever reads or writes it sees an error.
func (a *attachment) fail(code protocol.Code) {
	a.once.Do(func() {
		close(a.failed)
		a.Reset(code)
	})
}

// Serve attaches s (or fails with one of the errors above), sends what the caller lacks, and follows its frames until
// the caller has acknowledged the end (nil), or the stream is gone. It closes or
// resets the stream, and returns after the last write to it.
func (o *Operation) Serve(s Session) error {
	a := &attachment{Session: s, failed: make(chan struct{})}
	a.mu.Lock() // nothing goes before Accepted
	accepted, old, err := o.attach(a)
	if err != nil {
		a.mu.Unlock()
		return err
	}
	err = errFault // unless it is replaced
	var behind sync.WaitGroup
	o.guarded(func() { err = o.serve(a, accepted, old, &behind) })
	o.detach(a, err)
	behind.Wait()
	return err
}

// serve is Serve between attach and detach. It begins with a.mu held.
func (o *Operation) serve(a *attachment, accepted *protocol.Accepted, old *attachment, behind *sync.WaitGroup) error {
	if err := o.accept(a, accepted, old); err != nil {
		return err
	}
	if o.inputClosed() {
		o.sendTo(a, &protocol.StdinClosed{})
	}
	// What there is goes out while the caller's frames are read: it may not take
	// a frame before one of its own was taken.
	if o.behind(a) {
		behind.Go(func() { o.guarded(o.flush) })
	}
	return o.follow(a)
}

func (o *Operation) accept(a *attachment, accepted *protocol.Accepted, old *attachment) error {
	defer a.mu.Unlock()
	if old != nil {
		old.fail(protocol.CodeSupplanted)
	}
	if a.Attached {
		a.Frames.Resume(accepted.Stdin)
	}
	err := a.Writer.WriteFrame(accepted)
	if taken := o.acknowledged(a); err == nil && taken > 0 {
		err = a.Writer.WriteFrame(&protocol.Ack{Stdin: taken})
	}
	return err
}

// attach makes a the one attachment.
func (o *Operation) attach(a *attachment) (accepted *protocol.Accepted, old *attachment, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	old = o.current
	switch {
	case o.dropped:
		return nil, nil, ErrSettled
	case old != nil && !a.Input:
		return nil, nil, ErrBusy
	case a.Stdout > o.out[0].end || a.Stderr > o.out[1].end:
		return nil, nil, ErrBeyond
	}
	if o.grace != nil {
		o.grace.Stop()
	}
	o.current, o.served = a, true
	o.ackLocked(&o.out[0], a.Stdout)
	o.ackLocked(&o.out[1], a.Stderr)
	a.next[0] = max(a.Stdout, o.out[0].base)
	a.next[1] = max(a.Stderr, o.out[1].base)
	var token []byte
	if a.Input {
		token = o.cfg.Token
	}
	return &protocol.Accepted{
		Attached: a.Attached,
		Token:    token,
		Stdin:    o.in.got,
		Stdout:   a.next[0],
		Stderr:   a.next[1],
		Limits:   o.cfg.Limits,
	}, old, nil
}

// acknowledged is what a caller that attaches is told of its input, as the last
// acknowledgement may be lost. The caller holds a.mu, so that none overtakes it.
// spec: ATTACH-4
func (o *Operation) acknowledged(a *attachment) uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !a.Attached || !a.Input || o.in.closed {
		return 0
	}
	o.in.told = o.in.taken
	return o.in.taken
}

func (o *Operation) inputClosed() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.in.pipe != nil && o.in.closed && !o.exited
}

// follow reads the caller's frames until ExitAck.
func (o *Operation) follow(a *attachment) error {
	for {
		frame, err := a.Frames.Read()
		if err != nil {
			return err
		}
		switch f := frame.(type) {
		case *protocol.Data:
			err = o.takeInput(a, f.Payload)
		case *protocol.StdinEnd:
			err = o.endInput(a, f.Total)
		case *protocol.Ack:
			err = o.acked(a, f)
		case *protocol.OutputClosed:
			err = o.closeOutput(a, f.Stream)
		case *protocol.ExitAck:
			return o.exitAcked(a)
		default:
			err = errUnwanted
		}
		if err != nil {
			return err
		}
		o.heard(a)
	}
}

// acked takes the caller's word for what it has.
func (o *Operation) acked(a *attachment, f *protocol.Ack) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.current != a:
		return errSupplanted
	case f.Stdout > a.next[0] || f.Stderr > a.next[1]:
		return errUnwanted
	}
	before := o.out[0].base + o.out[1].base
	o.ackLocked(&o.out[0], f.Stdout)
	o.ackLocked(&o.out[1], f.Stderr)
	switch progress := o.out[0].base+o.out[1].base > before; {
	case !progress:
		a.beats = true
	case o.exit != nil:
		o.moved = time.Now()
		o.extendLocked(a)
	}
	return nil
}

// heard gives a caller that beats its time, once the operation has ended: its reader
// may take nothing for as long as it likes, if there is memory for it. spec: END-4
func (o *Operation) heard(a *attachment) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.exit == nil || o.hasty || !a.beats {
		return
	}
	_ = a.Stream.SetWriteDeadline(time.Now().Add(stall * o.cfg.ExitAck))
	o.extendLocked(a)
}

// Overdue tells that a caller that is alive has taken nothing for longer than one
// that is gone is waited for, and since when the operation has ended. What is kept for
// it may be dropped (Drop) for others.
func (o *Operation) Overdue() (ended time.Time, overdue bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.exit == nil || o.dropped {
		return time.Time{}, false
	}
	return o.ended, time.Since(o.moved) > max(o.cfg.Limits.Detached, stall*o.cfg.ExitAck)+o.cfg.ExitAck
}

// exitAcked takes the caller's word that it has the end, which it cannot have
// before that was written.
func (o *Operation) exitAcked(a *attachment) error {
	a.mu.Lock()
	told := a.last
	a.mu.Unlock()
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.current != a:
		return errSupplanted
	case !told:
		return errUnwanted
	}
	failpoint.Hit("acknowledged")
	o.settleLocked() // now, so that nobody attaches in between and waits for ever
	return nil
}

// extendLocked gives the caller time to acknowledge the end.
func (o *Operation) extendLocked(a *attachment) {
	patience := o.cfg.ExitAck
	if a.beats && !o.hasty {
		patience *= beat
	}
	_ = a.Stream.SetReadDeadline(time.Now().Add(patience))
}

// flush sends all that a stream which is attached lacks, and the end when there
// is nothing before it. It blocks while the stream takes nothing.
func (o *Operation) flush() {
	o.mu.Lock()
	a := o.current
	o.mu.Unlock()
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for !a.last {
		c, skip, exit := o.pending(a)
		var err error
		switch {
		case c != nil:
			err = o.write(a, c, skip)
		case exit != nil:
			a.last = true
			err = a.Writer.WriteFrame(exit)
			failpoint.Hit("told")
		default:
			return
		}
		if err != nil {
			a.fail(protocol.CodeInternal)
			return
		}
	}
}

// behind tells whether there is something to send that nobody else may be about to:
// what comes later is sent by who brings it.
func (o *Operation) behind(a *attachment) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range o.out {
		if o.out[i].end > a.next[i] {
			return true
		}
	}
	return o.exit != nil
}

// pending picks what comes next for a: standard error first, since little of it
// must not wait behind much of the other. skip is what the caller has of c.
func (o *Operation) pending(a *attachment) (c *chunk, skip int, exit *protocol.Exit) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.current != a || o.dropped {
		return nil, 0, nil
	}
	for i := len(o.out) - 1; i >= 0; i-- {
		f := &o.out[i]
		a.next[i] = max(a.next[i], f.base)
		if c := f.chunkAt(a.next[i]); c != nil {
			skip := int(a.next[i] - c.offset)
			a.next[i] = c.end()
			c.refs++
			return c, skip, nil
		}
	}
	if o.exit != nil {
		_ = a.Stream.SetWriteDeadline(time.Now().Add(stall * o.cfg.ExitAck))
		o.extendLocked(a)
	}
	return nil, 0, o.exit
}

// write sends c without its first skip bytes, in one Write.
func (o *Operation) write(a *attachment, c *chunk, skip int) error {
	frame := c.buf[c.start:]
	if skip > 0 {
		rest := c.payload()[skip:]
		buf := make([]byte, protocol.DataHeaderMax+len(rest))
		copy(buf[protocol.DataHeaderMax:], rest)
		start := protocol.PutDataHeader(buf, c.stream, c.offset+uint64(skip), len(rest))
		frame = buf[start:]
	}
	o.mu.Lock()
	ended := o.exit != nil
	o.mu.Unlock()
	if ended {
		_ = a.Stream.SetWriteDeadline(time.Now().Add(stall * o.cfg.ExitAck))
	}
	defer func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.cfg.Budget.unref(c)
	}()
	_, err := a.Stream.Write(frame)
	return err
}

// send writes one frame of the gateway's own, if a stream is attached and the
// end was not sent.
func (o *Operation) send(f protocol.Frame) {
	o.mu.Lock()
	a := o.current
	o.mu.Unlock()
	if a != nil {
		o.sendTo(a, f)
	}
}

func (o *Operation) sendTo(a *attachment, f protocol.Frame) {
	a.mu.Lock()
	defer a.mu.Unlock()
	o.sendLocked(a, f)
}

// sendLocked is sendTo for who holds a.mu.
func (o *Operation) sendLocked(a *attachment, f protocol.Frame) {
	if a.last || a.closed {
		return
	}
	_, a.closed = f.(*protocol.StdinClosed)
	if err := a.Writer.WriteFrame(f); err != nil {
		a.fail(protocol.CodeInternal)
	}
}

// detach ends the session of a: well if err is nil, otherwise the grace begins.
func (o *Operation) detach(a *attachment, err error) {
	if err == nil {
		_ = a.Stream.Close()
		return
	}
	code := protocol.CodeInternal
	if violation(err) {
		code = protocol.CodeProtocolViolation
		o.Cancel(CauseViolation)
	}
	a.fail(code)
	a.mu.Lock() // the last write has ended
	a.last = true
	a.mu.Unlock()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.current == a {
		o.current = nil
		o.detachedLocked()
	}
}

func violation(err error) bool {
	var v *protocol.ViolationError
	return errors.Is(err, errUnwanted) || errors.As(err, &v)
}
