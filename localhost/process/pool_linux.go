package process

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lendcli/lend/localhost/process/supervise"
)

const (
	// startTries bounds how often one start turns to another supervisor, because
	// the first died before it read the request.
	startTries = 3
	// busyTries bounds how often a start meets ETXTBSY: for a moment after a file
	// was written, a fork elsewhere in this process may still hold it open.
	busyTries = 5
	busyPause = 5 * time.Millisecond
	// mostWarm bounds how many supervisors wait after many commands ran at once:
	// starting one costs as much as two or three short commands.
	mostWarm = 32
	// lull is how often those beyond Config.Idle are ended that nobody needed.
	lull = 5 * time.Second
)

// backend is the pool of supervisors.
type backend struct {
	config Config
	exe    executable
	// patience is closeBudget and lull is lull, but for tests.
	patience, lull time.Duration
	tasks          sync.WaitGroup // every goroutine of the pool
	// forking is held shared from a fork to the moment when the new process is in
	// known, and exclusively while orphans are hunted, which spares the known.
	forking sync.RWMutex

	mu       sync.Mutex // guards what follows
	closed   bool
	idle     []*supervisor       // the last one was used last
	known    map[int]*supervisor // all that live, by process ID
	running  int                 // operations
	spawning int
	waiting  []chan *supervisor // first come, first served; nil means: start one
	spare    int                // the fewest that were idle since the last thinning
	thinning *time.Timer        // nil unless more than Config.Idle are idle
}

func newBackend(c Config) *backend {
	b := &backend{config: c, patience: closeBudget, lull: lull, known: make(map[int]*supervisor)}
	b.exe.find(c.ShimPath, c.Log)
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		c.Log.Error().Err(err).Msg("subreaper refused")
	}
	if _, _, err := b.exe.path(); err == nil {
		for range min(2, c.Idle) {
			b.tasks.Go(b.warm)
		}
	}
	return b
}

// warm adds an idle supervisor; a failure shows when one is needed.
func (b *backend) warm() {
	b.mu.Lock()
	b.spawning++
	b.mu.Unlock()
	s, err := b.spawn(true)
	b.spawned()
	if err == nil {
		b.offer(s)
	}
}

// start runs s under a supervisor of the pool.
func (b *backend) start(ctx context.Context, spec Spec) (running, error) {
	lost, busy := 0, 0
	for {
		s, err := b.acquire(ctx)
		if err != nil {
			return nil, err
		}
		op, err := s.start(spec)
		var failed *StartError
		switch {
		case err == nil:
			return op, nil
		case errors.Is(err, errUnread) && lost < startTries:
			lost++
		case errors.As(err, &failed) && failed.Errno == unix.ETXTBSY && busy < busyTries:
			busy++
			select {
			case <-ctx.Done():
				return nil, err
			case <-time.After(time.Duration(busy) * busyPause):
			}
		case errors.Is(err, errUnread):
			return nil, unavailable(err)
		default:
			return nil, err
		}
	}
}

// acquire returns an idle supervisor, for one operation: the one used last, a new
// one, or the next that becomes free, since more than a few forks at once only
// delay each other.
func (b *backend) acquire(ctx context.Context) (*supervisor, error) {
	b.mu.Lock()
	switch {
	case b.closed:
		b.mu.Unlock()
		return nil, unavailable(ErrClosed)
	case b.running >= b.config.Most:
		b.mu.Unlock()
		return nil, unavailable(ErrBusy)
	}
	b.running++
	if n := len(b.idle); n > 0 {
		s := b.idle[n-1]
		b.idle = b.idle[:n-1]
		b.spare = min(b.spare, n-1)
		b.mu.Unlock()
		return s, nil
	}
	if b.spawning >= 2*runtime.GOMAXPROCS(0) {
		next := make(chan *supervisor, 1)
		b.waiting = append(b.waiting, next)
		b.mu.Unlock()
		s, err := b.await(ctx, next)
		if s != nil || err != nil {
			return s, err
		}
	} else {
		b.spawning++
		b.mu.Unlock()
	}
	s, err := b.spawn(true)
	b.spawned()
	if err != nil {
		b.freed()
		return nil, unavailable(err)
	}
	return s, nil
}

// await waits in the queue. Neither supervisor nor error means: start one.
func (b *backend) await(ctx context.Context, next chan *supervisor) (*supervisor, error) {
	select {
	case s, ok := <-next:
		if !ok {
			b.freed()
			return nil, unavailable(ErrClosed)
		}
		return s, nil
	case <-ctx.Done():
	}
	b.mu.Lock()
	if i := slices.Index(b.waiting, next); i >= 0 {
		b.waiting = slices.Delete(b.waiting, i, i+1)
	}
	b.mu.Unlock()
	select { // a turn that came all the same is passed on
	case s, ok := <-next:
		switch {
		case ok && s != nil:
			b.offer(s)
		case ok:
			b.spawned()
		}
	default:
	}
	b.freed()
	return nil, context.Cause(ctx)
}

// spawned ends one fork and lets the next in the queue make another.
func (b *backend) spawned() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.spawning--
	if len(b.waiting) > 0 && !b.closed {
		b.spawning++
		b.waiting[0] <- nil
		b.waiting = b.waiting[1:]
	}
}

// freed ends one operation.
func (b *backend) freed() {
	b.mu.Lock()
	b.running--
	b.mu.Unlock()
}

// release takes s back from an operation that has ended: its subtree is empty.
func (b *backend) release(s *supervisor) {
	b.freed()
	b.offer(s)
}

// offer gives an idle supervisor to the first in the queue, keeps it, or ends it.
func (b *backend) offer(s *supervisor) {
	if s.once || !b.take(s) {
		s.kill()
	}
}

func (b *backend) take(s *supervisor) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, alive := b.known[s.pid]; !alive || b.closed {
		return false
	}
	if len(b.waiting) > 0 {
		b.waiting[0] <- s
		b.waiting = b.waiting[1:]
		return true
	}
	if len(b.idle) >= mostWarm {
		return false
	}
	b.idle = append(b.idle, s)
	b.thinLater()
	return true
}

// thinLater sees to it that those are ended that are not needed. b.mu is held.
func (b *backend) thinLater() {
	if len(b.idle) > b.config.Idle && b.thinning == nil {
		b.spare = len(b.idle)
		b.tasks.Add(1)
		b.thinning = time.AfterFunc(b.lull, b.thin)
	}
}

// thin ends those that were idle all the time since it was begun, but for Config.Idle.
func (b *backend) thin() {
	defer b.tasks.Done()
	b.mu.Lock()
	var ended []*supervisor
	if n := b.spare - b.config.Idle; n > 0 && !b.closed {
		ended = slices.Clone(b.idle[:n]) // the last one was used last
		b.idle = slices.Delete(b.idle, 0, n)
	}
	b.thinning = nil
	if !b.closed {
		b.thinLater()
	}
	b.mu.Unlock()
	for _, s := range ended {
		s.kill()
	}
}

// forget drops a supervisor that has ended.
func (b *backend) forget(s *supervisor) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.known, s.pid)
	if i := slices.Index(b.idle, s); i >= 0 {
		b.idle = slices.Delete(b.idle, i, i+1)
		b.spare = min(b.spare, len(b.idle))
	}
}

// stop refuses whatever waits for a supervisor.
func (b *backend) stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	if b.thinning != nil && b.thinning.Stop() {
		b.tasks.Done()
		b.thinning = nil
	}
	for _, w := range b.waiting {
		close(w)
	}
	b.waiting = nil
}

// close ends every supervisor; all operations are over.
func (b *backend) close() error {
	b.stop()
	b.mu.Lock()
	all := make([]*supervisor, 0, len(b.known))
	for _, s := range b.known {
		all = append(all, s)
	}
	b.mu.Unlock()
	for _, s := range all {
		s.kill()
	}
	b.tasks.Wait()
	return nil
}

// Supervisors counts those that run a command or are about to, and those that wait for
// one.
func (t *Transport) Supervisors() (busy, idle int) {
	t.backend.mu.Lock()
	defer t.backend.mu.Unlock()
	return len(t.backend.known) - len(t.backend.idle), len(t.backend.idle)
}

// Owns says whether the process is a supervisor of t or below one: whether it is
// part of a command that t runs. It reads the chain of parents, which a descendant
// of a supervisor cannot leave. Elsewhere than on Linux it is always false.
func (t *Transport) Owns(pid int) bool {
	for range 1 << 16 { // a chain has no cycle; IDs may change under us
		t.backend.mu.Lock()
		_, ours := t.backend.known[pid]
		t.backend.mu.Unlock()
		if ours {
			return true
		}
		st, err := supervise.ReadStat(pid)
		if err != nil || st.Parent <= 1 {
			return false
		}
		pid = st.Parent
	}
	return false
}

var errNoAnswer = errors.New("supervisor did not answer")

func spawnError(err error) error { return fmt.Errorf("start supervisor: %w", err) }
