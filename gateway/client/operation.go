package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/lendcli/lend/gateway/client/internal/ahead"
	"github.com/lendcli/lend/gateway/client/internal/dial"
	"github.com/lendcli/lend/gateway/client/internal/input"
	"github.com/lendcli/lend/gateway/client/internal/outbox"
	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/protocol"
)

// operation is one run, over one stream after the other if need be.
type operation struct {
	client   *Client
	ctx      context.Context //nolint:containedctx // an operation is a lifetime
	start    *protocol.Start
	key      protocol.OperationKey
	to       peer.AddrInfo
	stdin    io.Reader
	out      [3]io.Writer // by stream; owned by begin, then by take
	holed    [3]bool      // output was lost; likewise, and by run while nothing is taken
	lost     *OutputError // an output that failed here; likewise
	pipes    []pipe
	grace    time.Duration
	patience time.Duration // after a cancel

	outbox *outbox.Box
	ahead  *ahead.Queue
	token  []byte // owned by begin, then by run
	limits protocol.Limits
	maybe  bool         // a Start may have arrived; owned by begin
	asked  *atomic.Bool // likewise, for others
	// early: input may go before Accepted, since nobody can have used the ID. The
	// input is in memory then. spec: START-6
	early bool
	// follows: it was started elsewhere, and goes on without us; tail: what is gone
	// is not missed.
	follows, tail bool

	mu    sync.Mutex // guards what follows
	link  *link
	over  error // why no other stream will be tried
	why   error // why it was cancelled from here
	ceded bool  // another caller has it

	exit   *protocol.Exit // owned by run, then fixed
	result error          // likewise

	wg      sync.WaitGroup          // run, in a goroutine
	filled  chan struct{}           // closed when the input is not read any more; nil without input
	broken  context.CancelCauseFunc // takes why the input broke off; nil without input
	unwatch func()                  // lets nothing begin to leave any more
	left    chan struct{}           // closed when nothing leaves any more, after ended and unwatch
	ended   chan struct{}           // closed when the result is known
}

func (c *Cmd) operation(s *protocol.Start, l *lease.Lease, to peer.AddrInfo) *operation {
	o := &operation{
		client: c.client, ctx: c.ctx, asked: &c.asked, start: s, to: to, stdin: c.Stdin, grace: c.Grace, patience: c.CancelTimeout,
		key:   protocol.OperationKey{Issuer: rootIssuer(l), Invocation: l.Invocation, Operation: s.Operation},
		out:   [3]io.Writer{protocol.Stdout: c.Stdout, protocol.Stderr: c.Stderr},
		pipes: c.pipes, outbox: outbox.New(s.Stdin), left: make(chan struct{}), ended: make(chan struct{}),
	}
	o.ahead = ahead.New(o.take)
	if o.patience == 0 {
		o.patience = defaultCancelTimeout
	}
	return o
}

// begin gets the operation accepted; then run must follow.
func (o *operation) begin() (*link, error) {
	o.watch()
	early := o.early
	if early {
		o.fill()
	}
	l, err := o.accept()
	if err != nil {
		o.outbox.Done(nil)
		if early {
			<-o.filled
		}
		o.unwatch()
		close(o.ended)
		<-o.left
		return nil, o.unread(err)
	}
	if o.start.Stdin && !early {
		o.fill()
	}
	return l, nil
}

// fill reads the input in a goroutine that may outlive the operation only inside
// a Read that cannot be interrupted.
func (o *operation) fill() {
	o.filled = make(chan struct{})
	go func() {
		defer close(o.filled)
		if err := o.outbox.Fill(o.stdin); err != nil && !errors.Is(err, input.ErrOver) {
			o.broken(&InputError{Err: err}) // it must not look like an end
		}
	}()
}

// wait returns the result once.
func (o *operation) wait() error {
	<-o.ended
	o.wg.Wait()
	return o.result
}

func (o *operation) end() *protocol.Exit {
	select {
	case <-o.ended:
		return o.exit
	default:
		return nil
	}
}

const (
	// believed is how many links in a row the other end closes before its first word
	// until that is taken for its answer.
	believed = 4
	// longLoss is how long a link that answers nothing may take from Config.Wait until
	// it is known to be lost.
	longLoss = 5 * time.Second
)

// accept sends the request until it is answered for good. The same request under
// the same ID starts at most one command, so it may be sent again: spec: ACCEPT-1,
// CODE-2. The link is nil if another caller has taken over in between.
func (o *operation) accept() (*link, error) {
	deadline, hungUp, lost := time.Now().Add(o.client.config.Wait), 0, false
	for try := 0; ; try++ {
		began := time.Now()
		l, accepted, err := o.request(o.first())
		if err == nil {
			o.token, o.limits = accepted.Token, accepted.Limits
			if o.holed = o.outbox.Skip(accepted); o.tail {
				o.holed = [3]bool{}
			}
			if !o.early {
				err = o.outbox.Use(l, accepted.Stdin)
			}
			o.early = false // an Attach waits until it knows where the input goes on
			if err != nil {
				l.reset()
				return nil, unknown(err)
			}
			return l, nil
		}
		var refused *RefusedError
		explicit := errors.As(err, &refused)
		o.early = o.early && !o.maybe
		if errors.Is(err, dial.ErrHungUp) {
			hungUp++
		}
		lost = lost || errors.Is(err, dial.ErrLost)
		if took := time.Since(began); !explicit && o.maybe && took > longLoss && o.client.config.Wait > 0 {
			deadline = deadline.Add(took)
		}
		switch {
		case o.takenOver(err):
			return nil, nil
		case explicit && refused.Code == protocol.CodeOutcomeUnknown:
			return nil, unknown(err)
		case explicit && refused.Retryable():
		case explicit && (o.follows || final(refused.Code)):
			return nil, err
		case explicit, isViolation(err):
			return nil, o.unanswered(err)
		case !o.maybe && (!lost || hungUp >= believed || errors.Is(err, ErrNotGateway) || errors.Is(err, dial.ErrNotAdmitted)):
			return nil, o.unanswered(err)
		}
		pause := min(100*time.Millisecond<<min(try, 5), 2*time.Second)
		if explicit && refused.RetryAfter > 0 {
			pause = refused.RetryAfter
		}
		//nolint:gosec // callers that were refused together do not come back together
		pause += rand.N(pause/4 + 1)
		if time.Now().Add(pause).After(deadline) || !o.sleep(pause) {
			return nil, o.unanswered(err)
		}
	}
}

// final tells whether a refusal speaks of the operation itself, not only of the
// request that it answers.
func final(c protocol.Code) bool { return c == protocol.CodeNotStarted || c == protocol.CodeCancelled }

func isViolation(err error) bool {
	var v *protocol.ViolationError
	return errors.As(err, &v)
}

// unanswered is the error when no more is tried.
func (o *operation) unanswered(err error) error {
	if over := o.isOver(); over != nil {
		err = over
	}
	if o.maybe {
		return unknown(err)
	}
	var refused *RefusedError
	if cause := context.Cause(o.ctx); cause != nil && !errors.As(err, &refused) {
		return fmt.Errorf("start: %w", cause) // not what it broke
	}
	return err
}

// sleep returns false if the operation is over.
func (o *operation) sleep(d time.Duration) bool {
	return pause(o.ctx, d) && o.isOver() == nil
}

// request opens a stream, sends the first frame and reads the answer. An error
// that is not a *RefusedError leaves maybe set if the frame may have arrived.
func (o *operation) request(first protocol.Frame) (*link, *protocol.Accepted, error) {
	s, err := o.client.dialer.Open(o.ctx, o.to, protocol.RunID)
	if err != nil {
		return nil, nil, err
	}
	l := newLink(s)
	err = o.setLink(l)
	if err == nil && o.ctx.Err() != nil {
		err = context.Cause(o.ctx) // watch may not have seen the link
	}
	if err == nil && !o.maybe {
		err = o.cancelled() // likewise, of input that goes early
	}
	if err != nil {
		l.reset()
		return nil, nil, err
	}
	before := o.maybe
	o.maybe = true
	o.asked.Store(true)
	accepted, err := o.ask(l, first)
	if err != nil {
		o.outbox.Drop(l)
		l.reset()
		err = dial.Refused(err) // nothing but an answer is read before this
		var refused *RefusedError
		if errors.As(err, &refused) || errors.Is(err, ErrNotGateway) || errors.Is(err, ErrUnreachable) {
			o.maybe = before // it was not read
			o.asked.Store(before)
		}
		return nil, nil, err
	}
	return l, accepted, nil
}

func (o *operation) ask(l *link, first protocol.Frame) (*protocol.Accepted, error) {
	if err := l.WriteFrame(first); err != nil {
		return nil, err
	}
	if n := o.client.config.Grease; n > 0 && rand.N(n) == 0 { //nolint:gosec // any will do
		_ = l.WriteGrease(rand.N(1024), []byte("grease")) //nolint:gosec // any will do; an error shows when reading
	}
	if !o.early {
		o.outbox.Await(l)
	} else if err := o.outbox.Use(l, 0); err != nil {
		return nil, err
	}
	f, err := l.frames.Read()
	switch f := f.(type) {
	case *protocol.Accepted:
		return f, nil
	case *protocol.Refused:
		return nil, f.Err()
	}
	return nil, err
}

// link is one run stream of an operation.
type link struct {
	*dial.Stream
	*protocol.Writer
	frames *protocol.Reader
}

func newLink(s *dial.Stream) *link {
	return &link{Stream: s, Writer: protocol.NewWriter(s), frames: protocol.NewReader(s, protocol.Caller)}
}

func (l *link) reset() { _ = l.Reset() }

// setLink makes l the stream that abandon resets; it fails if all is over.
func (o *operation) setLink(l *link) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.over == nil {
		o.link = l
	}
	return o.over
}

func (o *operation) isOver() error {
	if o.client.isClosed() {
		return ErrClosed
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.over
}

// abandon gives up: the current stream is reset and no other is tried.
func (o *operation) abandon(why error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.over == nil {
		o.over = why
	}
	if o.link != nil {
		o.link.reset()
	}
	for _, p := range o.pipes {
		_ = p.CloseWithError(why)
	}
}

// watch makes the operation be left when ctx is done or the input broke off. Nobody
// waits for that meanwhile.
func (o *operation) watch() {
	ctx := o.ctx
	if o.start.Stdin {
		ctx, o.broken = context.WithCancelCause(ctx)
	}
	stop := context.AfterFunc(ctx, func() {
		defer close(o.left)
		o.leave(context.Cause(ctx))
	})
	o.unwatch = func() {
		if stop() {
			close(o.left)
		}
		if o.broken != nil {
			o.broken(nil)
		}
	}
}

// leave cancels the operation, and gives up when no end comes.
func (o *operation) leave(why error) {
	o.mu.Lock()
	o.why = why
	ceded := o.ceded
	o.mu.Unlock()
	ctx, stop := context.WithTimeout(context.WithoutCancel(o.ctx), o.patience)
	defer stop()
	if o.follows || ceded {
		o.abandon(why)
		return
	}
	if o.current() != nil { // else nothing was sent
		o.insist(ctx)
	}
	select {
	case <-o.ended:
	case <-ctx.Done():
		o.abandon(fmt.Errorf("no end came after the cancel: %w", why))
	}
}

// insist cancels until the gateway has heard it: a gateway that is busy does not
// remember the cancel of what it has not started yet, and the Start may be on its way.
func (o *operation) insist(ctx context.Context) {
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		_, err := o.cancel(ctx, o.grace)
		var refused *RefusedError
		if err == nil || errors.As(err, &refused) && !refused.Retryable() {
			return
		}
		o.client.config.Log.Debug().Err(err).Msg("cancel")
		select {
		case <-o.ended:
			return
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// cancelled returns why the operation was cancelled from here, nil if it was not.
func (o *operation) cancelled() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.why
}

func (o *operation) current() *link {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.link
}

// cancel travels on a stream of its own, so it never waits behind input. With the
// lease it also stops an operation that has not started yet. spec: CONTROL-3
func (o *operation) cancel(ctx context.Context, grace time.Duration) (protocol.OperationState, error) {
	reply, err := ask[*protocol.CancelReply](ctx, o.client, o.to, &protocol.CancelRequest{
		OperationKey: o.key, Lease: o.start.Lease, Grace: grace,
	})
	if err != nil {
		return 0, fmt.Errorf("cancel: %w", err)
	}
	return reply.State, nil
}
