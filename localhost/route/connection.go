package route

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lendcli/lend/protocol/argv"
)

// Errors of Resolve and of a start. Each means that no process runs.
var (
	// ErrNotFound: no current route matches the query.
	ErrNotFound = errors.New("no such route")
	// ErrAmbiguous: several connections match and the query names none.
	ErrAmbiguous = errors.New("several connections match")
	// ErrInvalid: the request itself is malformed or out of bounds.
	ErrInvalid = errors.New("start request invalid")
	// ErrUnavailable: the route is fenced, or the host is closing or cannot start.
	ErrUnavailable = errors.New("route unavailable")
	// ErrIdentityMismatch: a field differs from the exact current route's.
	ErrIdentityMismatch = errors.New("route identity mismatch")
)

// StartRequest asks the host to run one command under a pinned route. The host
// gives it a private working directory, or the root of the workspace that it
// names, and calls StartCLI.
type StartRequest struct {
	Identity Identity
	// Workspace names a workspace of the owner; "" means a private directory that
	// is dropped when the operation has ended.
	Workspace string
	// Place is the SHA-256 of the path that the workspace was decided to have, in
	// lower-case hexadecimal digits: another one is ErrIdentityMismatch. "" accepts
	// whichever the name leads to.
	Place string
	// Call is the canonical call that was authorised.
	Call argv.Call
	// Limits bound what the processes of the command take.
	Limits Limits
	// Stdin tells whether the child gets a pipe; otherwise /dev/null.
	Stdin bool
}

// StartCLIRequest is the exact execution primitive of the Connector runtime. Any
// identity field that differs from the exact current route is
// ErrIdentityMismatch, and no process starts.
type StartCLIRequest struct {
	Identity
	// WorkingDirectory is absolute, exists, and holds no NUL. Prepare alone takes ""
	// too: a private directory that is dropped when the CLI has been closed.
	WorkingDirectory string
	// Arguments are at most 256, of at most 131 071 bytes each and 256 KiB
	// together, none with NUL.
	Arguments []string
	// Environment sets variables that the contract lists, and no others.
	Environment []argv.Variable
	// Limits bound what the processes of the CLI take.
	Limits Limits
	// Stdin tells whether the child gets a pipe; otherwise /dev/null.
	Stdin bool
}

// Limits bound what the processes of one operation take; 0 means no bound. Where a
// bound cannot be enforced, nothing is started.
type Limits struct {
	// Processes and their threads at the same moment.
	Processes int
	// Memory is bytes, of each process.
	Memory int64
}

// Exit is how the root process of a CLI ended.
type Exit struct {
	Code   int    // 0 to 255; meaningless if Signal is set
	Signal string // "SIGTERM", …; "" if it exited by itself
	Core   bool   // it dumped core
	// Retired says that the route was retired and closed the process.
	Retired bool
	// Limited says that the tree was killed because it had more processes than its
	// Limits allow.
	Limited bool
	// Duration is the time from start to exit.
	Duration time.Duration
}

// Process is what a process transport gives for one running tree. Its pipes are
// closed by Close; reads and writes on them end when their other end is gone.
type Process interface {
	// Stdin is nil if the child has none. Close it to end the input.
	Stdin() io.WriteCloser
	Stdout() io.ReadCloser
	Stderr() io.ReadCloser
	// Wait returns once the root process has exited, or ctx is done; it may be
	// called again and by several goroutines.
	Wait(ctx context.Context) (Exit, error)
	// Terminate asks the tree to end; Kill ends it. Both are idempotent and do
	// nothing once the tree is gone.
	Terminate() error
	Kill() error
	// Close kills what is left of the tree, returns when none of it lives, and
	// closes the pipes. It is idempotent and returns the same error each time.
	Close() error
}

// Prepared is a start that is being made ready, and of which nothing runs. Its owner
// must call Start or Drop. All methods are safe for concurrent use.
type Prepared interface {
	// Start waits until it is ready and starts it. When ctx is done before the
	// transport has the start it returns at once; afterwards the transport's answer
	// counts. An error means that nothing ran, and nothing will: ErrUnavailable if the
	// route was fenced, or the start dropped or begun before; otherwise ctx's, or what
	// the start met. The caller must Close the process.
	Start(ctx context.Context) (Process, error)
	// Drop gives it up. After Start it does nothing.
	Drop()
}

// CLIConnection is one running CLI, owned by its route: retirement of the route
// closes it as well. It is a Process; the caller must Close it. All methods are
// safe for concurrent use.
type CLIConnection struct {
	process Process
	group   *group
	retired atomic.Bool // the route has begun to close it

	mu     sync.Mutex // guards what follows
	exit   *Exit      // what the first Wait that saw the exit returned
	first  *closing   // whose error Close returns
	latest *closing
}

// errNotClosed is of an attempt that did not come to its end, because it panicked.
var errNotClosed = errors.New("process was not closed")

// closing is one attempt to close a process; err is set when done is closed.
type closing struct {
	done chan struct{}
	err  error
}

var _ Process = (*CLIConnection)(nil)

// Stdin is nil if the child has none.
func (c *CLIConnection) Stdin() io.WriteCloser { return c.process.Stdin() }

// Stdout is the child's standard output.
func (c *CLIConnection) Stdout() io.ReadCloser { return c.process.Stdout() }

// Stderr is the child's standard error.
func (c *CLIConnection) Stderr() io.ReadCloser { return c.process.Stderr() }

// Wait returns how the root process ended, the same each time. Retired is set if
// the route began to close the process before its end was seen.
func (c *CLIConnection) Wait(ctx context.Context) (Exit, error) {
	e, err := c.process.Wait(ctx)
	if err != nil {
		return Exit{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.exit == nil {
		e.Retired = c.retired.Load()
		c.exit = &e
	}
	return *c.exit, nil
}

// Terminate asks the tree to end.
func (c *CLIConnection) Terminate() error { return c.process.Terminate() }

// Kill ends the tree.
func (c *CLIConnection) Kill() error { return c.process.Kill() }

// Close kills what is left of the tree, waits for its end, closes the pipes and
// releases the process from its route, exactly once. Every call returns the
// error of the first; after an error the route keeps the process, and tries
// again when it is retired.
func (c *CLIConnection) Close() error {
	if a, mine := c.shut(false); mine {
		c.carryOut(a)
	}
	<-c.first.done
	return c.first.err
}

// shut returns the attempt to close the process that is under way or, if it is mine,
// one that the caller must carry out. With again, an attempt that has failed is
// followed by another.
func (c *CLIConnection) shut(again bool) (a *closing, mine bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.latest != nil && !(again && c.latest.failed()) {
		return c.latest, false
	}
	a = &closing{done: make(chan struct{}), err: errNotClosed}
	c.latest = a
	if c.first == nil {
		c.first = a
	}
	return a, true
}

func (c *CLIConnection) carryOut(a *closing) {
	defer close(a.done)
	if a.err = c.process.Close(); a.err == nil {
		c.group.release(c)
	}
}

func (a *closing) failed() bool {
	select {
	case <-a.done:
		return a.err != nil
	default:
		return false
	}
}

// retire ends the process because its route is retired: terminate, a moment of
// grace, then close. It returns when ctx is done, while the close goes on.
func (c *CLIConnection) retire(ctx context.Context) error {
	c.retired.Store(true)
	grace, cancel := context.WithTimeout(ctx, retireGrace)
	defer cancel()
	if c.process.Terminate() == nil {
		_, _ = c.process.Wait(grace)
	}
	a, mine := c.shut(true)
	if mine {
		go c.carryOut(a) // the group keeps c until it is closed
	}
	select {
	case <-a.done:
		return a.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
