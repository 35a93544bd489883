package client

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/libp2p/go-libp2p/core/network"

	"github.com/lendcli/lend/gateway/client/internal/input"
	"github.com/lendcli/lend/protocol"
)

// cutAfter is how long a reader may take, after a link was lost, for what had come;
// then it is asked for again.
const cutAfter = time.Second

// lingerTimeout is how long the gateway's close is awaited after ExitAck.
const lingerTimeout = 2 * time.Second

// run follows the operation to its end, over other streams if one is lost.
func (o *operation) run(l *link) {
	var exit *protocol.Exit
	var err error
	for l != nil {
		if exit, err = o.follow(l); err == nil {
			break
		}
		o.outbox.Drop(l)
		l.reset()
		if o.takenOver(err) {
			l = nil
			break
		}
		o.ahead.Cut(cutAfter) // the rest comes again
		l, err = o.again(err)
	}
	if l == nil && err == nil || o.takenOver(err) {
		exit, err = o.cede()
	}
	o.outbox.StopInput()
	if err == nil {
		o.ahead.Drain()
	}
	o.ahead.Close()
	if o.stdin != nil {
		input.Interrupt(o.stdin, o.filled)
	}
	if err != nil {
		l, o.result = nil, o.unread(o.conclude(unknown(err)))
	} else {
		o.exit, o.result = exit, o.unread(o.judge(exit))
	}
	o.unwatch()
	for _, p := range o.pipes {
		_ = p.CloseWithError(nil) // the readers of outputs see their end
	}
	close(o.ended)
	o.acknowledge(l)
	<-o.left
}

// acknowledge sends ExitAck on l, if it is not nil, and leaves the stream to a goroutine
// of the client, until the gateway has closed it too. spec: END-4
func (o *operation) acknowledge(l *link) {
	if l == nil {
		o.outbox.Done(nil)
		return
	}
	_ = l.SetWriteDeadline(time.Now().Add(lingerTimeout)) // streams have deadlines
	o.outbox.Done(l)
	o.client.later(func() {
		_ = l.SetReadDeadline(time.Now().Add(lingerTimeout))
		if _, err := io.Copy(io.Discard, l.Stream); err != nil {
			l.reset()
			return
		}
		_ = l.Close() // the gateway has closed already
	})
}

// follow reads one stream until Exit.
func (o *operation) follow(l *link) (*protocol.Exit, error) {
	for {
		f, err := l.frames.Read()
		if err != nil {
			return nil, err
		}
		switch f := f.(type) {
		case *protocol.Data:
			o.ahead.Put(l.frames, f)
		case *protocol.Ack:
			if err := o.outbox.Ack(f.Stdin); err != nil {
				return nil, err
			}
		case *protocol.StdinClosed:
			o.outbox.StopInput()
			if p, ok := o.stdin.(*io.PipeReader); ok {
				_ = p.CloseWithError(input.ErrOver) // its writer learns it
			}
		case *protocol.Exit:
			return f, nil
		}
	}
}

// take writes output to the caller, in the goroutine of the queue. An error closes the output, and the rest of it
// is dropped; so is what comes after a hole. spec: OUTPUT-2
func (o *operation) take(d *protocol.Data) {
	if w := o.out[d.Stream]; w != nil && !o.holed[d.Stream] {
		if err := o.write(d, w); err != nil {
			o.out[d.Stream] = nil
			o.outbox.Close(d.Stream)
		}
	}
	o.outbox.Took(d.Stream, len(d.Payload))
}

// judge turns the end into the result. An end without all of the output is no
// success, and no failure of the command either. spec: END-3
func (o *operation) judge(e *protocol.Exit) error {
	if o.lost != nil {
		return o.conclude(o.ending(e))
	}
	taken, closed := o.outbox.Counts()
	for s, total := range [3]uint64{protocol.Stdout: e.Stdout, protocol.Stderr: e.Stderr} {
		if (taken[s] < total || o.holed[s]) && !closed[s] {
			why := errOutputGone
			if o.hasCeded() {
				why = ErrTakenOver
			}
			return &EndedError{Code: protocol.CodeOutcomeUnknown, Exit: e, Cause: fmt.Errorf("%w: %w", ErrOutcomeUnknown, why)}
		}
	}
	return o.ending(e)
}

// ending is how it ended, whatever is there of the output.
func (o *operation) ending(e *protocol.Exit) error {
	switch {
	case e.Code == protocol.CodeOutcomeUnknown:
		return unknown(errors.New("the gateway does not know it"))
	case e.Code == protocol.CodeNotStarted:
		return &RefusedError{Code: e.Code}
	case e.Code != protocol.CodeOK:
		return &EndedError{Code: e.Code, Exit: e, Cause: o.cancelled()}
	case e.Status != 0 || e.Signal != "":
		return &ExitError{Code: e.Status, Signal: e.Signal, Core: e.Core}
	}
	return nil
}

var errOutputGone = errors.New("a part of the output is gone")

// cede leaves the operation to the caller that has taken it over: to attach again
// would take it back, and to cancel it is not ours any more. It waits for the end.
func (o *operation) cede() (*protocol.Exit, error) {
	o.mu.Lock()
	o.ceded = true
	o.mu.Unlock()
	o.outbox.StopInput()
	o.ahead.Drain()
	patience, heard := max(o.limits.Detached, o.client.config.Wait), time.Now()
	for next := 100 * time.Millisecond; ; next = min(2*next, 2*time.Second) {
		reply, err := ask[*protocol.StatusReply](o.ctx, o.client, o.to, &protocol.StatusRequest{OperationKey: o.key})
		var refused *RefusedError
		switch {
		case err == nil && reply.Exit != nil:
			return reply.Exit, nil
		case err == nil && reply.State != protocol.OperationRunning:
			return nil, ErrTakenOver
		case err == nil:
			heard = time.Now()
		case errors.As(err, &refused) && !refused.Retryable(), time.Since(heard) > patience:
			return nil, fmt.Errorf("%w; then %w", ErrTakenOver, err)
		}
		if !o.sleep(next) {
			return nil, ErrTakenOver
		}
	}
}

// takenOver tells that a stream was reset because another one follows the operation
// now. Who only follows waits for its turn, and takes nothing back. spec: CODE-3
func (o *operation) takenOver(err error) bool {
	var e *network.StreamError
	return !o.follows && errors.As(err, &e) && e.Remote && e.ErrorCode == protocol.ResetBase+network.StreamErrorCode(protocol.CodeSupplanted)
}

func (o *operation) hasCeded() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.ceded
}

// again attaches over a new stream after one was lost, within the time for which
// the operation outlives its link. spec: ATTACH-3
func (o *operation) again(lost error) (*link, error) {
	if isViolation(lost) {
		return nil, lost
	}
	if errors.Is(lost, io.EOF) {
		lost = errNoEnd
	}
	deadline := time.Now().Add(o.limits.Detached)
	for try := 0; ; try++ {
		if over := o.isOver(); over != nil {
			return nil, over
		}
		taken, _ := o.outbox.Counts()
		l, a, err := o.request(&protocol.Attach{
			Issuer: o.key.Issuer, Invocation: o.key.Invocation, Operation: o.key.Operation, Token: o.token,
			Stdout: taken[protocol.Stdout], Stderr: taken[protocol.Stderr],
		})
		var refused *RefusedError
		switch {
		case err == nil:
			return o.resume(l, a)
		case o.takenOver(err):
			return nil, err
		case errors.As(err, &refused) && !refused.Retryable():
			return nil, fmt.Errorf("%w; then %w", lost, err)
		}
		pause := min(100*time.Millisecond<<min(try, 5), 2*time.Second)
		if time.Now().Add(pause).After(deadline) || !o.sleep(pause) {
			return nil, fmt.Errorf("%w; then %w", lost, err)
		}
	}
}

// resume goes on where the operation is.
func (o *operation) resume(l *link, a *protocol.Accepted) (*link, error) {
	taken, _ := o.outbox.Counts()
	if a.Stdout < taken[protocol.Stdout] || a.Stderr < taken[protocol.Stderr] {
		l.reset()
		return nil, &protocol.ViolationError{Rule: "ACCEPT-2", Msg: "outputs that begin before what was asked for"}
	}
	for s, hole := range o.outbox.Skip(a) {
		o.holed[s] = o.holed[s] || hole
	}
	if err := o.outbox.Use(l, a.Stdin); err != nil {
		l.reset()
		return nil, err
	}
	return l, nil
}
