package operation

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lendcli/lend/localhost/route"
	"github.com/lendcli/lend/protocol"
)

// Budgets of the ladder and of the last frames, where Config names none.
const (
	DefaultGrace   = 5 * time.Second         // between Terminate and Kill
	DefaultDrain   = 2 * time.Second         // for outputs that something else holds open
	DefaultExitAck = protocol.ExitAckTimeout // without progress, after Exit was written

	firstAttach = 10 * time.Second // for the stream of the Start, whatever the grace is
	killBudget  = 5 * time.Second  // for the root process to be gone after Kill

	hastyDrain = 100 * time.Millisecond // for what is in the pipes of a tree that Hurry had killed

	// Times ExitAck: for one frame, once the process has ended, and for the next one of
	// a caller that beats.
	stall, beat = 12, 3
)

// Config says how one operation runs. It must not be changed after New.
type Config struct {
	// Token is what Accepted gives; 16 bytes.
	Token []byte
	// Limits hold for the run; Detached is the grace after a lost link.
	Limits protocol.Limits
	// Text accepts valid UTF-8 only as input.
	Text bool
	// Budget is shared by all operations of a gateway; it must be set.
	Budget *Budget
	// Grace, Drain and ExitAck are the constants Default… where zero.
	Grace, Drain, ExitAck time.Duration
	// OnEnd is called once, when the end is known and before it is sent; it must
	// not block for long. The process and its tree are gone then.
	OnEnd func(protocol.Exit)
	// OnDone is called once, after OnEnd or Abandon, when nothing is kept for a
	// caller any more.
	OnDone func()
}

// Operation is one run. All methods are safe for concurrent use.
type Operation struct {
	cfg     Config
	ctx     context.Context //nolint:containedctx // the operation is this lifetime
	cancel  context.CancelCauseFunc
	process route.Process // set by Run, before its goroutines start
	started time.Time     // likewise
	drained chan struct{} // closed when both outputs have ended
	settled chan struct{} // closed when nothing is kept for a caller any more
	done    chan struct{} // closed after the last goroutine of Run
	broken  atomic.Bool   // some goroutine of it has panicked
	onEnd   sync.Once     // around cfg.OnEnd

	mu      sync.Mutex // guards all that follows
	out     [2]output  // by Stream-1
	in      input
	window  uint64 // bytes of both outputs that may be unacknowledged
	grown   uint64 // bytes acknowledged since the window last grew
	current *attachment
	served  bool        // a stream was attached, or none is waited for
	grace   *time.Timer // runs while nothing is attached
	lost    error       // a cause that cost bytes
	exited  bool        // the root process has exited
	sealed  bool        // no more bytes are taken from the outputs
	dropped bool        // settled is closed
	exit    *protocol.Exit
	ended   time.Time     // when exit was known
	moved   time.Time     // when the caller last took something after that
	hasty   bool          // a caller is waited for only while it takes something
	hurry   chan struct{} // closed by Hurry, when its time has come
	hurried *time.Timer
	hurryAt time.Time // when hurried fires
}

// New returns an operation that has not started. It ends by Run or by Abandon.
func New(cfg Config) *Operation {
	if cfg.Grace == 0 {
		cfg.Grace = DefaultGrace
	}
	if cfg.Drain == 0 {
		cfg.Drain = DefaultDrain
	}
	if cfg.ExitAck == 0 {
		cfg.ExitAck = DefaultExitAck
	}
	o := &Operation{
		cfg:     cfg,
		drained: make(chan struct{}),
		settled: make(chan struct{}),
		done:    make(chan struct{}),
		hurry:   make(chan struct{}),
		window:  protocol.MinWindow,
	}
	o.ctx, o.cancel = context.WithCancelCause(context.Background())
	for i := range o.out {
		o.out[i].stream = protocol.Stream(i + 1)
		o.out[i].wake = make(chan struct{}, 1)
	}
	o.in.wake, o.in.space = make(chan struct{}, 1), make(chan struct{}, 1)
	return o
}

// Context is done once the operation is being stopped; its cause is a Cause. A
// start that is under way uses it.
func (o *Operation) Context() context.Context { return o.ctx }

// Cancel asks for the end; the first cause counts. It never blocks.
func (o *Operation) Cancel(c Cause) { o.cancel(c) }

// Done is closed when the operation has ended, its tree is gone and nothing is
// kept for a caller any more.
func (o *Operation) Done() <-chan struct{} { return o.done }

// Ended returns the end, and whether it is known yet.
func (o *Operation) Ended() (protocol.Exit, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.exit == nil {
		return protocol.Exit{}, false
	}
	return *o.exit, true
}

// Attached tells whether a stream is attached now.
func (o *Operation) Attached() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.current != nil
}

// Totals returns the bytes of input, standard output and standard error so far.
func (o *Operation) Totals() (stdin, stdout, stderr uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.in.taken, o.out[0].end, o.out[1].end
}

// Abandon ends an operation that never got a process.
func (o *Operation) Abandon() {
	o.cancel(CauseInternal)
	o.settle()
	o.finished()
}

func (o *Operation) finished() {
	if o.cfg.OnDone != nil {
		o.cfg.OnDone()
	}
	close(o.done)
}

// Run takes over p and starts. It is called at most once and not after Abandon.
// A cancel that came earlier takes the ladder at once.
func (o *Operation) Run(p route.Process) {
	o.process, o.started = p, time.Now()
	o.out[0].pipe, o.out[1].pipe, o.in.pipe = p.Stdout(), p.Stderr(), p.Stdin()
	o.mu.Lock()
	o.detachedLocked()
	o.mu.Unlock()
	var all sync.WaitGroup
	var ended atomic.Int32
	for i := range o.out {
		all.Go(func() {
			o.pumped(&o.out[i])
			if int(ended.Add(1)) == len(o.out) {
				close(o.drained)
			}
		})
	}
	if o.in.pipe != nil {
		all.Go(func() { o.guarded(o.feed) })
	}
	go func() {
		defer o.finished()
		if !o.guarded(o.supervise) {
			o.collapse()
		}
		all.Wait()
	}()
}

// Shutdown cancels with CauseShutdown and waits for no caller to attach again:
// once the end is sent, or known while nothing is attached, the operation is done.
func (o *Operation) Shutdown() {
	o.Cancel(CauseShutdown)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.cfg.Limits.Detached, o.served, o.hasty = 0, true, true
	if o.exit != nil && o.current != nil {
		o.extendLocked(o.current)
	}
	o.detachedLocked()
}

// Drop forgets what is kept for a caller; an operation that has ended is then
// done.
func (o *Operation) Drop() {
	o.settle()
	o.mu.Lock()
	a := o.current
	o.mu.Unlock()
	if a != nil {
		a.fail(protocol.CodeInternal)
	}
}

// supervise follows the process to its end, tells it, and keeps the tail until
// the caller has it or its grace is over.
func (o *Operation) supervise() {
	if o.cfg.Limits.Run > 0 {
		t := time.AfterFunc(o.cfg.Limits.Run, func() { o.Cancel(CauseDeadline) })
		defer t.Stop()
	}
	var e ending
	e.exit, e.wait = o.process.Wait(o.ctx)
	if e.wait != nil {
		e.cause = context.Cause(o.ctx) // nil: the transport failed
		e.exit, e.wait = o.ladder()
	}
	o.rootExited()
	forced := o.drain(e.cause != nil)
	err := o.process.Close()
	if e.wait != nil {
		e.exit, e.wait = o.waitFor(time.Second, nil)
	}
	o.finish(e, forced || err != nil)
	o.flush()
	<-o.settled
}

// inputDelay is how long a process that was asked to end has before its input is closed.
const inputDelay = time.Second

// ladder ends a process that is still running: the tree is asked to end, after a moment
// its input is closed, for one that waits for it, and the tree is killed when the grace
// is over. Its input is not closed before: half of it would look like all of it to a
// process that was not asked yet, which would do something with it.
func (o *Operation) ladder() (route.Exit, error) {
	o.dropInput()
	rest := o.cfg.Grace
	if o.process.Terminate() == nil { // Kill and Close follow whatever it says
		if exit, err := o.waitFor(min(rest, inputDelay), o.hurry); err == nil {
			return exit, nil
		}
		rest -= inputDelay
	}
	if rest > 0 && !isClosed(o.hurry) {
		o.closeInput()
		if exit, err := o.waitFor(rest, o.hurry); err == nil {
			return exit, nil
		}
	}
	_ = o.process.Kill() // Close follows, and answers for the tree
	return o.waitFor(killBudget, nil)
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// waitFor waits for the root process, at most d and until cut is closed.
func (o *Operation) waitFor(d time.Duration, cut <-chan struct{}) (route.Exit, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(o.ctx), d)
	defer cancel()
	if cut != nil {
		waited := make(chan struct{})
		defer close(waited)
		go func() { // ends with this function
			select {
			case <-cut:
				cancel()
			case <-waited:
			}
		}()
	}
	return o.process.Wait(ctx)
}

// Hurry shortens the grace between Terminate and Kill, from now on, to d: then nothing
// of the tree goes on, whoever holds its outputs or does not read them. It is for an
// operation that was cancelled. Later calls may only shorten it further.
func (o *Operation) Hurry(d time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	d = min(d, o.cfg.Grace)
	at := time.Now().Add(d)
	if o.hurried != nil && (!at.Before(o.hurryAt) || !o.hurried.Stop()) {
		return // it has come, is about to, or comes earlier
	}
	o.hurryAt, o.hurried = at, time.AfterFunc(d, sync.OnceFunc(func() { close(o.hurry) }))
}

// rootExited lets the outputs be read beyond the window: what is left in the
// pipes is bounded, and the caller's slowness must not hold the drain.
func (o *Operation) rootExited() {
	o.mu.Lock()
	o.exited = true
	o.mu.Unlock()
	o.closeInput()
	for i := range o.out {
		wake(o.out[i].wake)
	}
}

// drain waits for the end of both outputs. Time in which only the caller holds
// them up does not count, unless the operation was stopped. When Hurry's time has come
// the tree is killed. It reports whether something was cut off.
func (o *Operation) drain(stopped bool) bool {
	idle := time.NewTimer(o.cfg.Drain)
	defer idle.Stop()
	cancelled, hurried := o.ctx.Done(), (<-chan struct{})(o.hurry)
	if stopped {
		cancelled = nil
	}
	for {
		select {
		case <-o.drained:
			return false
		case <-cancelled:
			stopped, cancelled = true, nil
		case <-hurried:
			stopped, hurried = true, nil
			_ = o.process.Kill() // Close follows, and answers for the tree
			idle.Reset(min(o.cfg.Drain, hastyDrain))
		case <-idle.C:
			if !stopped && o.heldByCaller() {
				idle.Reset(o.cfg.Drain)
				continue
			}
			return o.seal()
		}
	}
}

// seal ends the outputs as they are. It reports whether one was still open.
func (o *Operation) seal() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sealed = true
	open := false
	for i := range o.out {
		open = open || !o.out[i].ended
		wake(o.out[i].wake)
	}
	return open
}

// finish makes the one end public.
func (o *Operation) finish(e ending, forced bool) {
	o.seal()
	o.mu.Lock()
	if e.lost = o.lost; e.lost == nil && o.broken.Load() {
		e.lost = CauseInternal
	}
	if e.exit.Signal != "" {
		e.exit.Code = 0
	}
	exit := protocol.Exit{
		Code:     e.code(),
		Status:   e.exit.Code,
		Signal:   e.exit.Signal,
		Core:     e.exit.Core,
		Forced:   forced,
		Stdin:    o.in.taken,
		Stdout:   o.out[0].end,
		Stderr:   o.out[1].end,
		Duration: time.Since(o.started),
	}
	o.mu.Unlock()
	if o.cfg.OnEnd != nil {
		o.onEnd.Do(func() { o.cfg.OnEnd(exit) })
	}
	o.publish(exit)
}

// publish lets callers have the end.
func (o *Operation) publish(exit protocol.Exit) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.exit, o.ended, o.moved = &exit, time.Now(), time.Now()
	if o.current == nil {
		o.detachedLocked()
		return
	}
	// A write that the caller's stall holds up must not hold the end for ever.
	_ = o.current.Stream.SetWriteDeadline(time.Now().Add(stall * o.cfg.ExitAck))
}

// detachedLocked starts the grace, if nothing is attached.
func (o *Operation) detachedLocked() {
	if o.current != nil || o.dropped {
		return
	}
	if o.grace != nil {
		o.grace.Stop()
	}
	grace := o.cfg.Limits.Detached
	if !o.served {
		grace = max(grace, firstAttach)
	}
	o.grace = time.AfterFunc(grace, o.graceOver)
}

func (o *Operation) graceOver() {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.current != nil:
	case o.exit != nil:
		o.settleLocked()
	default:
		o.Cancel(CausePeerGone)
	}
}

// settle drops all that is kept.
func (o *Operation) settle() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.settleLocked()
}

func (o *Operation) settleLocked() {
	if o.dropped {
		return
	}
	o.dropped, o.sealed = true, true
	if o.grace != nil {
		o.grace.Stop()
	}
	for i := range o.out {
		o.forgetLocked(&o.out[i])
		wake(o.out[i].wake)
	}
	close(o.settled)
}

func wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
