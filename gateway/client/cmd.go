package client

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/lendcli/lend/gateway/client/internal/input"
	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/protocol"
	"github.com/lendcli/lend/protocol/name"
)

// Cmd is one operation that is prepared or runs. It is used once, by one
// goroutine, except that Cancel may be called from any after Start.
type Cmd struct {
	// Connector, Name and Args say what to run.
	Connector, Name string
	Args            []string
	// Version is needed only if the lease has several of the Connector.
	Version string
	// OperationID names the operation; "" makes a new one. After a lost link or a
	// crash the same ID with the same request never runs the command again.
	OperationID string

	// Stdin is sent to the command; nil means none. If a Read of it cannot be
	// interrupted, one goroutine stays in it after Wait and drops what it gets. If one
	// fails, the command is cancelled, and Wait returns an *InputError.
	Stdin io.Reader
	// Stdout and Stderr get the outputs; nil means that they are dropped. Writes
	// come from one goroutine. When one fails, the command's output is closed, as
	// that of a local command would be, and the run goes on; unless its reader has
	// only left (a closed pipe), Wait returns an *OutputError.
	Stdout, Stderr io.Writer

	// Tail is for Attach: output that the gateway does not have any more is not
	// missed. Without it the outcome is unknown then, as it is for a run.
	Tail bool

	// Grace is the time between the polite stop and the kill when ctx is done; 0
	// leaves it to the gateway.
	Grace time.Duration
	// CancelTimeout bounds the wait for the end after ctx was done: then the
	// outcome is unknown. 0 means 15 s.
	CancelTimeout time.Duration

	ctx     context.Context //nolint:containedctx // a Cmd is a lifetime
	client  *Client
	started bool
	follows bool // made by Attach
	asked   atomic.Bool
	op      *operation
	pipes   []pipe // the operation's ends, closed when it has ended
}

// pipe is either end of an io.Pipe.
type pipe interface{ CloseWithError(err error) error }

const defaultCancelTimeout = 15 * time.Second

// Command prepares a command of a Connector. When ctx is done before the end, the
// command is cancelled at the gateway, and Wait returns its end.
func (c *Client) Command(ctx context.Context, connector, command string, args ...string) *Cmd {
	return &Cmd{Connector: connector, Name: command, Args: args, ctx: ctx, client: c}
}

// StdinPipe returns a pipe to the command's input. Closing it ends the input.
func (c *Cmd) StdinPipe() (io.WriteCloser, error) {
	if c.started || c.Stdin != nil {
		return nil, errors.New("stdin pipe: stdin is set or the command was started")
	}
	r, w := io.Pipe()
	c.Stdin = r
	c.pipes = append(c.pipes, r)
	return w, nil
}

// StdoutPipe returns a pipe from the command's output. It must be read to its end,
// or closed, before Wait.
func (c *Cmd) StdoutPipe() (io.ReadCloser, error) { return c.outputPipe(&c.Stdout, "stdout") }

// StderrPipe is StdoutPipe for the other output.
func (c *Cmd) StderrPipe() (io.ReadCloser, error) { return c.outputPipe(&c.Stderr, "stderr") }

func (c *Cmd) outputPipe(to *io.Writer, what string) (io.ReadCloser, error) {
	if c.started || *to != nil {
		return nil, fmt.Errorf("%s pipe: it is set or the command was started", what)
	}
	r, w := io.Pipe()
	*to = w
	c.pipes = append(c.pipes, w)
	return r, nil
}

// Run is Start and Wait, all in this goroutine.
func (c *Cmd) Run() error {
	l, err := c.begin()
	if err != nil {
		return err
	}
	c.op.run(l)
	return c.op.wait()
}

// Output runs the command and returns its standard output.
func (c *Cmd) Output() ([]byte, error) {
	if c.Stdout != nil {
		return nil, errors.New("output: stdout is set")
	}
	var b bytes.Buffer
	c.Stdout = &b
	err := c.Run()
	return b.Bytes(), err
}

// Start sends the request and returns when the gateway has accepted it: the
// command's start is on record. A *RefusedError means that nothing ran; one that
// says "not now" is waited for (Config.Wait). An error that is neither that nor
// an *EndedError means that nothing was sent.
func (c *Cmd) Start() error {
	l, err := c.begin()
	if err != nil {
		return err
	}
	c.op.wg.Go(func() { c.op.run(l) })
	return nil
}

func (c *Cmd) begin() (*link, error) {
	if c.started {
		return nil, errors.New("start: already started")
	}
	c.started = true
	var l *link
	op, err := c.prepare()
	if err == nil {
		l, err = op.begin()
	}
	if err != nil {
		for _, p := range c.pipes {
			_ = p.CloseWithError(err) // a pipe's Close does not fail
		}
		return nil, err
	}
	c.op = op
	c.client.config.Log.Debug().Str("op", c.OperationID).Str("connector", c.Connector).Str("command", c.Name).Msg("started")
	return l, nil
}

// Wait returns when the operation has ended and all its output was written: nil
// if the command succeeded, else *ExitError, *RefusedError, *EndedError or, if an
// output could not be written here, *OutputError, or the input not read, *InputError. It
// may be called again.
func (c *Cmd) Wait() error {
	if c.op == nil {
		return errors.New("wait: not started")
	}
	return c.op.wait()
}

// Exit returns what the gateway said of the end, with totals and duration; nil if
// it has not, or Wait has not returned.
func (c *Cmd) Exit() *protocol.Exit {
	if c.op == nil {
		return nil
	}
	return c.op.end()
}

// Asked tells whether a request may have reached the gateway by now: until then nothing
// runs because of it. It may be called from any goroutine, at any time.
func (c *Cmd) Asked() bool { return c.asked.Load() }

// Limits returns what holds for the operation; the zero value before Start.
func (c *Cmd) Limits() protocol.Limits {
	if c.op == nil {
		return protocol.Limits{}
	}
	return c.op.limits
}

// Cancel asks the gateway to stop the command, and returns what it was. Wait
// still returns its end. It may be called several times; a shorter grace then
// counts.
func (c *Cmd) Cancel(ctx context.Context, grace time.Duration) (protocol.OperationState, error) {
	if c.op == nil {
		return 0, errors.New("cancel: not started")
	}
	return c.op.cancel(ctx, grace)
}

// prepare checks all that can be checked without the gateway.
func (c *Cmd) prepare() (*operation, error) {
	if c.client.isClosed() {
		return nil, ErrClosed
	}
	if err := c.ctx.Err(); err != nil {
		return nil, fmt.Errorf("start: %w", context.Cause(c.ctx))
	}
	if c.follows {
		return c.prepareAttach()
	}
	fresh := c.OperationID == ""
	start, err := c.request()
	if err != nil {
		return nil, err
	}
	f, to, err := c.client.lease(c.ctx)
	if err != nil {
		return nil, err
	}
	start.Version, err = grant(&f.Lease, start.Connector, start.Version, start.Command)
	if err != nil && (!c.client.config.SkipLeaseCheck || start.Version.IsZero()) {
		return nil, err
	}
	start.Lease = f.Chain
	op := c.operation(start, &f.Lease, to)
	op.early = fresh && start.Stdin && input.InMemory(c.Stdin)
	return op, nil
}

func (c *Cmd) request() (*protocol.Start, error) {
	s := &protocol.Start{Arguments: c.Args, Stdin: c.Stdin != nil}
	var err error
	if s.Connector, err = name.ParseConnectorKey(c.Connector); err != nil {
		return nil, err
	}
	if s.Command, err = name.ParseCommand(c.Name); err != nil {
		return nil, err
	}
	if c.Version != "" {
		if s.Version, err = name.ParseVersion(c.Version); err != nil {
			return nil, err
		}
	}
	if c.OperationID == "" {
		c.OperationID = "op-" + rand.Text()
	}
	if s.Operation, err = name.ParseOperationID(c.OperationID); err != nil {
		return nil, err
	}
	return s, checkArguments(c.Args)
}

// checkArguments spares a round trip: spec: START-3.
func checkArguments(args []string) error {
	total, long := 0, false
	for _, a := range args {
		total += len(a)
		long = long || len(a) > protocol.MaxArgument
	}
	if long || len(args) > protocol.MaxArguments || total > protocol.MaxArgumentBytes {
		return &RefusedError{
			Code:   protocol.CodeArgumentRejected,
			Public: "there are more than 256 arguments, or they are too long",
		}
	}
	return nil
}

// rootIssuer: what a chain says altogether has the issuer of its root.
func rootIssuer(l *lease.Lease) name.PeerID { return l.Issuer }
