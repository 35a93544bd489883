package probe

import (
	"cmp"
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/lendcli/lend/localhost/internal/revision"
	"github.com/lendcli/lend/localhost/route"
)

// defaultEvery is how often a route is probed, give or take a fifth, so that the
// probes of many routes do not stay together.
const defaultEvery = 5 * time.Minute

// Routes are the current routes; *route.Registry has them.
type Routes interface {
	Snapshot() (revision uint64, routes []route.Descriptor)
	Changed(seen uint64) <-chan struct{}
}

// Starter starts a CLI; *localhost.Host is one.
type Starter interface {
	Start(ctx context.Context, r route.StartRequest) (route.Process, error)
}

// Config is what a Prober is made of. It must not be changed after New.
type Config struct {
	Routes  Routes
	Starter Starter
	// Every is the time between two probes of one route, give or take a fifth; 0 is
	// five minutes.
	Every time.Duration
	// Log gets what changes, without what a probe wrote; the zero value is silent.
	Log zerolog.Logger
}

// Prober probes the current routes, one at a time. All methods are safe for
// concurrent use. The owner must Close it before the Starter.
type Prober struct {
	cfg    Config
	cancel context.CancelFunc
	done   chan struct{}

	found revision.Counter // raised when a finding says something new

	mu    sync.Mutex
	known map[route.Identity]Readiness // of current routes that were probed; guarded by mu
	due   map[route.Identity]time.Time // of those that have a probe; of the goroutine alone
}

// New begins to probe.
func New(cfg Config) *Prober {
	cfg.Every = cmp.Or(max(cfg.Every, 0), defaultEvery)
	ctx, cancel := context.WithCancel(context.Background())
	p := &Prober{
		cfg: cfg, cancel: cancel, done: make(chan struct{}),
		known: make(map[route.Identity]Readiness), due: make(map[route.Identity]time.Time),
	}
	go p.loop(ctx)
	return p
}

// Close ends the probe that runs, and waits for its end. It is idempotent.
func (p *Prober) Close() {
	p.cancel()
	<-p.done
}

// Of returns what is known of one current route.
func (p *Prober) Of(d route.Descriptor) Readiness {
	if d.Probe == nil {
		return Readiness{Identity: d.Identity, State: Unknown, Reason: NoProbe}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if r, ok := p.known[d.Identity]; ok {
		return r
	}
	return Readiness{Identity: d.Identity, State: Unknown, Reason: Pending}
}

// All returns what is known of each current route, in the order of the routes, and
// the revision of what was found.
func (p *Prober) All() (revision uint64, all []Readiness) {
	revision = p.found.Now() // first: what is found meanwhile is newer
	_, routes := p.cfg.Routes.Snapshot()
	for _, d := range routes {
		all = append(all, p.Of(d))
	}
	return revision, all
}

// Changed returns a channel that is closed as soon as something was found that is
// newer than the revision that was seen.
func (p *Prober) Changed(seen uint64) <-chan struct{} { return p.found.After(seen) }

func (p *Prober) loop(ctx context.Context) {
	defer close(p.done)
	for {
		seen, routes := p.cfg.Routes.Snapshot()
		next, at := p.follow(routes, time.Now())
		if next != nil && !at.After(time.Now()) {
			p.probe(ctx, *next)
			if ctx.Err() != nil {
				return
			}
			continue
		}
		if !p.wait(ctx, next != nil, at, p.cfg.Routes.Changed(seen)) {
			return
		}
	}
}

// wait waits for a turn, if there is one, or a change; false means that ctx is done.
func (p *Prober) wait(ctx context.Context, turn bool, at time.Time, changed <-chan struct{}) bool {
	var wake <-chan time.Time
	if turn {
		t := time.NewTimer(time.Until(at))
		defer t.Stop()
		wake = t.C
	}
	select {
	case <-wake:
	case <-changed:
	case <-ctx.Done():
		return false
	}
	return true
}

// follow forgets routes that are gone, has new ones probed now, and returns the one
// whose turn is next, if any has a probe.
func (p *Prober) follow(routes []route.Descriptor, now time.Time) (next *route.Descriptor, at time.Time) {
	current := make(map[route.Identity]bool, len(routes))
	for i, d := range routes {
		if d.Probe == nil {
			continue
		}
		current[d.Identity] = true
		if _, ok := p.due[d.Identity]; !ok {
			p.due[d.Identity] = now
		}
		if next == nil || p.due[d.Identity].Before(at) {
			next, at = &routes[i], p.due[d.Identity]
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for id := range p.due {
		if !current[id] {
			delete(p.due, id)
			delete(p.known, id)
		}
	}
	return next, at
}

// probe runs one probe and remembers what it found.
func (p *Prober) probe(ctx context.Context, d route.Descriptor) {
	r, err := run(ctx, p.cfg.Starter, d)
	p.due[d.Identity] = time.Now().Add(spread(p.cfg.Every))
	p.mu.Lock()
	was, ok := p.known[d.Identity]
	p.known[d.Identity] = r
	p.mu.Unlock()
	if ok && was.same(r) && err == nil {
		return
	}
	p.found.Raise()
	level := zerolog.InfoLevel
	if err != nil || r.State == NotReady {
		level = zerolog.WarnLevel
	}
	id := d.Identity
	p.cfg.Log.WithLevel(level).Err(err).Str("connector", id.Connector.String()).Str("version", id.Version.String()).
		Str("connection", id.Connection.String()).Str("state", r.String()).Msg("readiness probed")
}

// spread is d, give or take a fifth.
func spread(d time.Duration) time.Duration {
	return d - d/5 + rand.N(max(2*(d/5), 1)) //nolint:gosec // it protects nothing
}
