package process

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/lendcli/lend/localhost/route"
)

// MaxSpec bounds the bytes of path, directory, arguments and environment of one
// Spec together. It is above what any kernel takes, which answers E2BIG.
const MaxSpec = 4 << 20

// Errors of a Transport, beside *StartError and those of package route.
var (
	// ErrBusy: as many operations run as Config.Most allows; nothing was started.
	ErrBusy = errors.New("too many operations at once")
	// ErrClosed: the Transport was closed; nothing was started.
	ErrClosed = errors.New("process transport is closed")
	// ErrLost: the supervisor died in the middle. How the command ended, or whether
	// it began, is unknown; nothing of it lives.
	ErrLost = errors.New("supervisor died: outcome unknown")
	// ErrSurvivors: the kernel did not let go of a killed process in time.
	ErrSurvivors = errors.New("a killed process has not ended yet")
	// ErrOutput: Run stopped the command because it wrote more than was allowed.
	ErrOutput = errors.New("command wrote too much output")
	// ErrLimits: this system cannot enforce the limits of the Spec.
	ErrLimits = errors.New("limits of processes and memory need Linux")
	// ErrMain: Main was not called, so this executable cannot be its own supervisor.
	ErrMain = errors.New("process.Main was not called first in main")
)

// Spec says exactly what runs. Nothing is added to it and nothing is looked up.
type Spec struct {
	// Path is the absolute path of the executable.
	Path string
	// Args is the argument vector, argv[0] included; at least one.
	Args []string
	// Env is the complete environment, NAME=VALUE; empty means none.
	Env []string
	// Dir is the absolute working directory.
	Dir string
	// Stdin gives the child a pipe; otherwise it gets the null device.
	Stdin bool
	// Pin is what the file at Path was when it was verified: nothing else is executed,
	// nor that if it has changed since. The zero value means any file. It is for
	// executables: a script cannot be pinned. Linux only: elsewhere it is ignored.
	Pin Pin
	// Limits bound the tree. Linux only: elsewhere a bound is ErrLimits.
	Limits route.Limits
}

// Pin is one state of one file: whatever changes its content, mode or owner gives
// another. Times are nanoseconds since 1970. No file has the zero Pin.
type Pin struct {
	Device, Inode           uint64
	Size, Modified, Changed int64
}

// Stage is the step of a start that failed.
type Stage string

// The stages of a start.
const (
	StageDirectory Stage = "enter working directory"
	StageExecute   Stage = "execute"
)

// StartError says why the operating system did not start a command. Nothing runs.
// errors.Is matches Errno (and io/fs errors through it) and route.ErrUnavailable.
type StartError struct {
	Stage Stage
	Errno syscall.Errno // ENOENT, EACCES, ENOEXEC, E2BIG, ETXTBSY, ESTALE (another file than the pinned one), …
}

// Error names stage and cause, and no path or argument.
func (e *StartError) Error() string {
	if e.Errno == syscall.ESTALE {
		return string(e.Stage) + ": it is not the file that was verified"
	}
	return string(e.Stage) + ": " + e.Errno.Error()
}

// Unwrap returns the errno and route.ErrUnavailable.
func (e *StartError) Unwrap() []error { return []error{e.Errno, route.ErrUnavailable} }

// check refuses what could not mean what it says; errors match route.ErrInvalid.
func (s Spec) check() error {
	switch {
	case !filepath.IsAbs(s.Path):
		return invalid("path is not absolute")
	case !filepath.IsAbs(s.Dir):
		return invalid("working directory is not absolute")
	case s.Limits.Processes < 0 || s.Limits.Memory < 0:
		return invalid("limit is negative")
	case len(s.Args) == 0:
		return invalid("no argv[0]")
	case hasNUL(s.Path) || hasNUL(s.Dir):
		return invalid("NUL in a path")
	}
	size := len(s.Path) + len(s.Dir)
	for _, a := range s.Args {
		if hasNUL(a) {
			return invalid("NUL in an argument")
		}
		size += len(a) + perString
	}
	for _, e := range s.Env {
		if eq := strings.IndexByte(e, '='); eq <= 0 || hasNUL(e) {
			return invalid("malformed environment entry")
		}
		size += len(e) + perString
	}
	if size > MaxSpec {
		return &StartError{Stage: StageExecute, Errno: syscall.E2BIG}
	}
	return nil
}

// perString is what one string costs in a request beyond its bytes.
const perString = 4

func hasNUL(s string) bool { return strings.IndexByte(s, 0) >= 0 }

func invalid(why string) error { return fmt.Errorf("process spec: %s: %w", why, route.ErrInvalid) }
