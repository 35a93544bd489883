package route

import (
	"context"
	"errors"
	"io"
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
	// Call is the canonical call that was authorised.
	Call argv.Call
	// Stdin tells whether the child gets a pipe; otherwise /dev/null.
	Stdin bool
}

// StartCLIRequest is the exact execution primitive of the Connector runtime. Any
// identity field that differs from the exact current route is
// ErrIdentityMismatch, and no process starts.
type StartCLIRequest struct {
	Identity
	// WorkingDirectory is absolute, exists, and holds no NUL.
	WorkingDirectory string
	// Arguments are at most 256, of at most 131 071 bytes each and 256 KiB
	// together, none with NUL.
	Arguments []string
	// Environment sets variables that the contract lists, and no others.
	Environment []argv.Variable
	// Stdin tells whether the child gets a pipe; otherwise /dev/null.
	Stdin bool
}

// Exit is how the root process of a CLI ended.
type Exit struct {
	Code   int    // 0 to 255; meaningless if Signal is set
	Signal string // "SIGTERM", …; "" if it exited by itself
	Core   bool   // it dumped core
	// Retired says that the route was retired and closed the process.
	Retired bool
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
