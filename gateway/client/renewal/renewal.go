package renewal

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/protocol/name"
)

// Config is what New needs. It must not be changed after New.
type Config struct {
	// Fetch asks for a lease and returns it with the addresses of its gateway. It is
	// called by one goroutine at a time, and has to return when ctx is done. Its errors
	// must not hold a lease. Needed.
	Fetch func(ctx context.Context) (lease.File, error)
	// First is a lease that is there already; the zero value is none.
	First lease.File
	// Holder is whom leases must name (Client.Holder); zero takes the first one's.
	Holder name.PeerID
	// Timeout bounds one Fetch; 0 means 10 s.
	Timeout time.Duration
	// Log gets a line for each renewal and each failure; the zero value is silent.
	Log zerolog.Logger
	// Now is the wall clock; nil means time.Now.
	Now func() time.Time
}

// Errors of Lease. Those of Fetch are wrapped as they are.
var (
	// ErrClosed: the Source is closed.
	ErrClosed = errors.New("the lease source is closed")
	// ErrTimeout: Fetch took too long.
	ErrTimeout = errors.New("the issuer did not answer in time")
	// ErrOther: the lease is of another issuer, invocation, holder or gateway than the
	// one before. An operation ID would mean another operation under it.
	ErrOther = errors.New("the new lease is not for the same work: it is of another issuer, invocation, holder or gateway")
	// ErrNotNewer: the lease expires no later than the one before.
	ErrNotNewer = errors.New("the new lease expires no later than the old one")
)

// Source is a lease that is renewed. Lease is safe for concurrent use. The caller must
// Close it.
type Source struct {
	config Config
	ctx    context.Context //nolint:containedctx // a Source is a lifetime
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex // guards what follows
	file    lease.File // present if have
	have    bool
	renewAt time.Time
	retryAt time.Time // no Fetch before
	fails   int
	failure error
	flight  *flight // nil: none
	closed  bool
}

// flight is one Fetch. err is set when done is closed.
type flight struct {
	ctx  context.Context //nolint:containedctx // a flight is a lifetime
	done chan struct{}
	err  error
}

const (
	defaultTimeout = 10 * time.Second
	// Bounds of the wait after a failure.
	leastPause, mostPause = time.Second, 30 * time.Second
	// almostOver is how near its end a lease is no use for something new, if there can
	// be another; at most a tenth of its life.
	almostOver = 2 * time.Second
)

// New makes a Source. It asks for nothing yet. A First that is not valid at all, or of
// another holder, is an error; one that has expired is not.
func New(c Config) (*Source, error) {
	if c.Fetch == nil {
		return nil, errors.New("new lease source: no Fetch")
	}
	if c.Timeout <= 0 {
		c.Timeout = defaultTimeout
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	s := &Source{config: c}
	s.config.First = lease.File{}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	if len(c.First.Chain) > 0 {
		f, err := opened(c.First)
		if err == nil && !c.Holder.IsZero() && f.Lease.Holder != c.Holder {
			err = ErrOther
		}
		if err != nil {
			s.cancel()
			return nil, fmt.Errorf("new lease source: %w", err)
		}
		s.take(f)
	}
	return s, nil
}

// String and GoString hold no lease.
func (s *Source) String() string { return "lease source" }

// GoString is String.
func (s *Source) GoString() string { return s.String() }

// Lease returns a lease that is valid now, and begins to renew it if that is due. It is
// a client.LeaseSource. If there is none it waits for one, until ctx is done. The error
// is that of Fetch, of ctx, or one of this package's; it is the last failure again until
// another Fetch is due.
func (s *Source) Lease(ctx context.Context) (lease.File, error) {
	f, wait, err := s.now()
	if wait == nil {
		return f, err
	}
	select {
	case <-wait.done:
		err = wait.err
	case <-wait.ctx.Done(): // a Fetch that does not notice
		err = ErrTimeout
		if s.isClosed() {
			err = ErrClosed
		}
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed && s.valid(0) {
		return s.file, nil
	}
	return lease.File{}, fmt.Errorf("renew lease: %w", err)
}

// now returns what there is without waiting, or what to wait for.
func (s *Source) now() (lease.File, *flight, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return lease.File{}, nil, ErrClosed
	}
	now := s.config.Now()
	if (!s.have || !now.Before(s.renewAt)) && s.flight == nil && !now.Before(s.retryAt) {
		s.begin()
	}
	switch {
	case s.valid(s.margin()), s.flight == nil && s.valid(0):
		return s.file, nil, nil
	case s.flight == nil:
		return lease.File{}, nil, fmt.Errorf("renew lease: %w", s.failure)
	}
	return lease.File{}, s.flight, nil
}

// valid tells whether the lease lives for longer than left. mu is held.
func (s *Source) valid(left time.Duration) bool {
	return s.have && s.config.Now().Add(left).Before(s.file.Lease.NotAfter)
}

func (s *Source) margin() time.Duration {
	return min(almostOver, s.file.Lease.NotAfter.Sub(s.file.Lease.NotBefore)/10)
}

// begin starts a Fetch. mu is held.
func (s *Source) begin() {
	f := &flight{done: make(chan struct{})}
	var cancel context.CancelFunc
	f.ctx, cancel = context.WithTimeout(s.ctx, s.config.Timeout)
	s.flight = f
	s.wg.Go(func() {
		defer cancel()
		file, err := s.config.Fetch(f.ctx)
		if err == nil {
			file, err = opened(file)
		} else if errors.Is(f.ctx.Err(), context.DeadlineExceeded) {
			err = fmt.Errorf("%w: %w", ErrTimeout, err)
		}
		s.land(f, file, err)
	})
}

// land ends a flight.
func (s *Source) land(f *flight, file lease.File, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		err = s.fits(&file.Lease)
	}
	s.flight, s.failure, f.err = nil, err, err
	defer close(f.done)
	if err == nil {
		s.fails, s.retryAt = 0, time.Time{}
		s.take(file)
		s.config.Log.Debug().Msg("lease renewed")
		return
	}
	pause := min(leastPause<<min(s.fails, 10), mostPause)
	pause += rand.N(pause/4 + 1) //nolint:gosec // callers that failed together do not come back together
	s.fails++
	s.retryAt = s.config.Now().Add(pause)
	s.config.Log.Warn().Str("problem", name.Show(err.Error())).Int64("ms", pause.Milliseconds()).Msg("lease not renewed")
}

// fits tells whether l can take the present lease's place. mu is held.
func (s *Source) fits(l *lease.Lease) error {
	holder := l.Holder
	if !s.config.Holder.IsZero() {
		holder = s.config.Holder
	}
	if err := l.Usable(holder, name.PeerID{}, s.config.Now()); err != nil {
		return err
	}
	if !s.have {
		return nil
	}
	old := &s.file.Lease
	switch {
	case l.Issuer != old.Issuer, l.Invocation != old.Invocation, l.Holder != old.Holder, l.Gateway != old.Gateway:
		return ErrOther
	case !l.NotAfter.After(old.NotAfter):
		return ErrNotNewer
	}
	return nil
}

// take makes f the lease. mu is held, or nobody else has the Source.
func (s *Source) take(f lease.File) {
	l := &f.Lease
	from := l.NotBefore
	if now := s.config.Now(); now.After(from) && now.Before(l.NotAfter) {
		from = now
	}
	life := max(l.NotAfter.Sub(from), 0)
	s.file, s.have = f, true
	s.renewAt = from.Add(life/2 + rand.N(life/6+1)) //nolint:gosec // any moment will do
}

// Close ends a Fetch that runs, and waits for it. It is idempotent; Lease is ErrClosed
// then. The lease stays valid until it expires or is revoked.
func (s *Source) Close() error {
	s.mu.Lock()
	s.closed = true
	s.file, s.have = lease.File{}, false
	s.mu.Unlock()
	s.cancel()
	s.wg.Wait()
	return nil
}

func (s *Source) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

func opened(f lease.File) (lease.File, error) {
	var err error
	if f.Lease, err = lease.Open(f.Chain); err != nil {
		return lease.File{}, fmt.Errorf("open lease: %w", err)
	}
	return f, nil
}
