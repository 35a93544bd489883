package probe

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/lendcli/lend/localhost/route"
	"github.com/lendcli/lend/protocol/argv"
)

// MaxOutput bounds each output of a probe, in bytes.
const MaxOutput = 64 << 10

// drainTime is how long the outputs may stay open after a probe has exited, when
// something that it left behind holds them.
const drainTime = time.Second

var (
	errTimeout = errors.New("probe took too long")
	errOutput  = errors.New("probe wrote too much")
)

// run runs the probe of d once. It returns when nothing of it is left, or with the
// error of what could not be ended.
func run(ctx context.Context, s Starter, d route.Descriptor) (Readiness, error) {
	r := Readiness{Identity: d.Identity, State: Unknown}
	ctx, cancel := context.WithTimeoutCause(ctx, d.Probe.Timeout, errTimeout)
	defer cancel()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	began := time.Now()
	p, err := s.Start(ctx, route.StartRequest{
		Identity: d.Identity,
		Call:     argv.Call{Arguments: slices.Concat(d.Contract.Arguments, d.Probe.Arguments)},
	})
	if err != nil {
		r.Reason = notStarted(ctx, err)
		r.At, r.Took = time.Now(), time.Since(began)
		return r, nil
	}
	var readers sync.WaitGroup
	for _, out := range []io.Reader{p.Stdout(), p.Stderr()} {
		readers.Go(func() {
			if n, _ := io.Copy(io.Discard, io.LimitReader(out, MaxOutput+1)); n > MaxOutput {
				stop(errOutput)
			}
		})
	}
	drained := make(chan struct{})
	go func() {
		readers.Wait()
		close(drained)
	}()
	exit, err := p.Wait(ctx)
	if err == nil {
		late := time.NewTimer(drainTime)
		defer late.Stop()
		select {
		case <-drained:
		case <-late.C:
		case <-ctx.Done():
		}
	}
	closed := p.Close() // ends the readers too
	<-drained
	r.State, r.Reason, r.Status = verdict(context.Cause(ctx), exit, err)
	r.At, r.Took = time.Now(), time.Since(began)
	return r, closed
}

// notStarted says why nothing ran: the route has changed, or the host is closing, or
// the host could not start it.
func notStarted(ctx context.Context, err error) Reason {
	cause := context.Cause(ctx)
	if errors.Is(err, route.ErrIdentityMismatch) || cause != nil && !errors.Is(cause, errTimeout) {
		return Interrupted
	}
	return NotStarted
}

// verdict says what the end of a probe that ran means.
func verdict(cause error, exit route.Exit, err error) (State, Reason, int) {
	switch {
	case errors.Is(cause, errTimeout):
		return NotReady, Timeout, 0
	case errors.Is(cause, errOutput):
		return NotReady, Output, 0
	case cause != nil || err != nil || exit.Retired:
		return Unknown, Interrupted, 0
	case exit.Signal != "":
		return NotReady, Signal, 0
	case exit.Code != 0:
		return NotReady, ExitStatus, exit.Code
	}
	return Ready, "", 0
}
