package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/lendcli/lend/localhost/route"
)

const (
	// drainBudget is how long the outputs may stay open after the command has
	// exited, when a process that it left behind holds them.
	drainBudget = 2 * time.Second
	// graceBudget is the time between asking an interactive command to end and
	// killing it.
	graceBudget = 2 * time.Second
)

// Result is how a command that Run ran ended, and what it wrote.
type Result struct {
	Exit           route.Exit
	Stdout, Stderr []byte
}

// Run runs s to its end without input (a pipe asked for by s is closed at once) and
// keeps what it writes, at most maxOutput bytes of each output; more is ErrOutput.
// ctx bounds the whole run; when it is done the tree is killed and the error
// matches its cause. An exit code that is not zero is no error. The Result holds
// what there is, with an error too. When Run returns, nothing of the command lives.
func (t *Transport) Run(ctx context.Context, s Spec, maxOutput int) (Result, error) {
	return t.Feed(ctx, s, nil, maxOutput)
}

// Feed is Run with input: the command reads it, if it likes, and then the end.
func (t *Transport) Feed(ctx context.Context, s Spec, input []byte, maxOutput int) (Result, error) {
	p, err := t.Start(ctx, s)
	if err != nil {
		return Result{}, err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var stdout, stderr bytes.Buffer
	var readers sync.WaitGroup
	if in := p.Stdin(); in != nil {
		readers.Go(func() {
			_, _ = in.Write(input) // whether the child still listens is its own affair
			_ = in.Close()
		})
	}
	readers.Go(func() { keep(&stdout, p.Stdout(), maxOutput, stop) })
	readers.Go(func() { keep(&stderr, p.Stderr(), maxOutput, stop) })
	drained := make(chan struct{})
	go func() { readers.Wait(); close(drained) }()

	exit, err := p.Wait(ctx)
	if err == nil {
		budget := time.NewTimer(drainBudget)
		defer budget.Stop()
		select {
		case <-drained:
		case <-budget.C:
		case <-ctx.Done():
		}
	}
	closed := p.Close() // ends the readers too
	<-drained
	if cause := context.Cause(ctx); cause != nil {
		exit, _ = p.Wait(ctx) // how it ended by our hand
		err = cause
	}
	if err = errors.Join(err, closed); err != nil {
		err = fmt.Errorf("run command: %w", err)
	}
	return Result{Exit: exit, Stdout: stdout.Bytes(), Stderr: stderr.Bytes()}, err
}

func keep(to *bytes.Buffer, from io.Reader, most int, stop context.CancelCauseFunc) {
	n, _ := io.Copy(to, io.LimitReader(from, int64(most)+1)) // the end by Close is an end too
	if n > int64(most) {
		to.Truncate(most)
		stop(ErrOutput)
	}
}

// Interactive runs s on the standard input, output and error of this process, in
// its session and process group, so that the command can use the terminal. While it
// runs, ^C is the command's alone. It is for a person on this machine (a Connector's
// own login) and for nothing that comes from a peer. When ctx is done the command
// is terminated, then killed. When Interactive returns, nothing of it lives.
func (t *Transport) Interactive(ctx context.Context, s Spec) (route.Exit, error) {
	restore := holdTerminal()
	defer restore()
	p, err := t.start(ctx, s, t.backend.startOnTerminal)
	if err != nil {
		return route.Exit{}, err
	}
	exit, err := p.Wait(ctx)
	if ctx.Err() != nil {
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), graceBudget)
		defer cancel()
		_ = p.Terminate() // Close kills whoever does not listen
		exit, err = p.Wait(grace)
		err = errors.Join(context.Cause(ctx), err)
	}
	return exit, errors.Join(err, p.Close())
}
