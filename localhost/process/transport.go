package process

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/rs/zerolog"

	"github.com/lendcli/lend/localhost/process/cgroup"
	"github.com/lendcli/lend/localhost/process/supervise"
	"github.com/lendcli/lend/localhost/route"
)

// Defaults and bounds of Config.
const (
	DefaultIdle = 4
	MaxIdle     = 16
	DefaultMost = 256
)

// Config configures a Transport. The zero value is good for a gateway.
type Config struct {
	// ShimPath is the lend-shim that shall be the supervisor; "" means the one beside
	// this executable. Unless it carries the same build, this executable itself is
	// started again instead. Linux only.
	ShimPath string
	// Idle is how many supervisors stay warm for good; 0 means DefaultIdle, at most
	// MaxIdle. After many commands at once more do, up to 32, as long as some of them
	// are needed every few seconds.
	Idle int
	// Most is how many operations may run at once; 0 means DefaultMost.
	Most int
	// Cgroup is the delegated cgroup in which each operation gets one of its own; nil
	// means none. It stays the caller's, to be closed after the Transport.
	Cgroup *cgroup.Tree
	// Log gets the loss of a supervisor, and nothing of a command. The zero value is
	// silent.
	Log zerolog.Logger
}

// Transport starts commands and owns what it started. It is safe for concurrent
// use; the caller must Close it.
type Transport struct {
	backend  *backend
	starting sync.WaitGroup

	mu     sync.Mutex // guards closed and live
	closed bool
	live   map[running]struct{}
}

// running is what a backend started: a Process that tells when it was closed.
type running interface {
	route.Process
	onClose(func())
}

// New returns a Transport. On Linux it makes this process a subreaper for good:
// an embedding program that starts daemons of its own must then reap what they
// orphan. It starts a few supervisors in the background.
func New(c Config) *Transport {
	if c.Idle <= 0 {
		c.Idle = DefaultIdle
	}
	c.Idle = min(c.Idle, MaxIdle)
	if c.Most <= 0 {
		c.Most = DefaultMost
	}
	return &Transport{backend: newBackend(c), live: make(map[running]struct{})}
}

// Start starts s. ctx bounds the wait for a supervisor and nothing later: once the
// request was handed over, the answer alone decides. An error means that nothing
// runs: one that matches route.ErrInvalid, *StartError, ErrBusy, ErrClosed or the
// cause of ctx; all but the first and the last match route.ErrUnavailable too. If
// a supervisor dies between request and answer, the Process is returned and its
// Wait gives ErrLost. The caller must Close the Process.
func (t *Transport) Start(ctx context.Context, s Spec) (route.Process, error) {
	return t.start(ctx, s, t.backend.start)
}

func (t *Transport) start(ctx context.Context, s Spec, start func(context.Context, Spec) (running, error)) (route.Process, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	if err := t.begin(); err != nil {
		return nil, err
	}
	defer t.starting.Done()
	if ctx.Err() != nil {
		return nil, fmt.Errorf("start process: %w", context.Cause(ctx))
	}
	r, err := start(ctx, s)
	if err != nil {
		return nil, fmt.Errorf("start process: %w", err)
	}
	t.mu.Lock()
	t.live[r] = struct{}{}
	t.mu.Unlock()
	r.onClose(func() {
		t.mu.Lock()
		delete(t.live, r)
		t.mu.Unlock()
	})
	return r, nil
}

func (t *Transport) begin() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return fmt.Errorf("start process: %w", unavailable(ErrClosed))
	}
	t.starting.Add(1)
	return nil
}

// Close kills what still runs and returns when none of it lives and every
// supervisor and goroutine has ended. It is idempotent. The error, if any, matches
// ErrSurvivors.
func (t *Transport) Close() error {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.backend.stop()
	t.starting.Wait()
	t.mu.Lock()
	live := make([]running, 0, len(t.live))
	for r := range t.live {
		live = append(live, r)
	}
	t.mu.Unlock()
	errs := make([]error, len(live)+1)
	var all sync.WaitGroup
	for i, r := range live {
		all.Go(func() { errs[i] = r.Close() })
	}
	all.Wait()
	errs[len(live)] = t.backend.close()
	return errors.Join(errs...)
}

// mainCalled tells that this executable, started again as a supervisor, becomes one
// instead of a second copy of the program. It is the one thing that only main knows.
var mainCalled atomic.Bool //nolint:gochecknoglobals // set once by Main, by its nature process-wide

// Main becomes a supervisor, and does not return, if this process was started as
// one; otherwise it does nothing. It must be the first thing in main of every
// program that uses a Transport, and in TestMain.
func Main() {
	supervise.Main()
	mainCalled.Store(true)
}

func unavailable(err error) error { return fmt.Errorf("%w: %w", route.ErrUnavailable, err) }
