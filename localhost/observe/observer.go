package observe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lendcli/lend/localhost/internal/revision"
	"github.com/lendcli/lend/localhost/route"
	"github.com/lendcli/lend/localhost/signature"
)

const (
	defaultEvery = 30 * time.Second
	// gap is the least time between two looks that nobody asked for, so that starts
	// that come fast are one change.
	gap = 100 * time.Millisecond
)

// ErrClosed means that the observer was closed, and nothing newer will come.
var ErrClosed = errors.New("observer is closed")

// Routes are the routes and what runs of them; *route.Registry has them.
type Routes interface {
	Snapshot() (revision uint64, routes []route.Descriptor)
	Changed(seen uint64) <-chan struct{}
	Activity() (revision uint64, all []route.Activity)
	ActivityChanged(seen uint64) <-chan struct{}
}

// Config is what an Observer is made of. It must not be changed after New.
type Config struct {
	// Store is the absolute directory of package install.
	Store string
	// Publishers is the owner's list of them; nil requires nothing.
	Publishers *signature.File
	Routes     Routes
	// Receipts returns the newest receipts, oldest first; nil means that there are
	// none. It is called from one goroutine at a time.
	Receipts func() []Receipt
	// Every is how often the disk is looked at when nothing else gives cause; 0 is
	// half a minute.
	Every time.Duration
}

// Observer keeps the newest snapshot. All methods are safe for concurrent use. The
// owner must Close it.
type Observer struct {
	cfg     Config
	inspect func(context.Context, string) disk // inspected, except in tests
	cancel  context.CancelFunc
	done    chan struct{}
	asked   chan chan struct{} // of Refresh: closed when it was looked

	raised revision.Counter // after newest was replaced
	mu     sync.Mutex
	newest Snapshot // guarded by mu
}

// New looks at everything, and goes on until Close.
func New(cfg Config) *Observer {
	return start(cfg, func(ctx context.Context, store string) disk { return inspected(ctx, store, cfg.Publishers) })
}

func start(cfg Config, inspect func(context.Context, string) disk) *Observer {
	cfg.Every = cmp.Or(max(cfg.Every, 0), defaultEvery)
	if cfg.Receipts == nil {
		cfg.Receipts = func() []Receipt { return nil }
	}
	ctx, cancel := context.WithCancel(context.Background())
	o := &Observer{cfg: cfg, inspect: inspect, cancel: cancel, done: make(chan struct{}), asked: make(chan chan struct{})}
	go o.loop(ctx)
	return o
}

// Close ends the looking and waits for its end. It is idempotent.
func (o *Observer) Close() {
	o.cancel()
	<-o.done
}

// Now returns the newest snapshot; its revision is 0 before the first look has ended.
func (o *Observer) Now() Snapshot {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.newest.clone()
}

// Changed returns a channel that is closed as soon as there is a snapshot newer than
// the revision that was seen.
func (o *Observer) Changed(seen uint64) <-chan struct{} { return o.raised.After(seen) }

// Next waits for a snapshot that is newer than the revision that was seen; 0 means
// that none was. It is ErrClosed after Close, unless there is one.
func (o *Observer) Next(ctx context.Context, seen uint64) (Snapshot, error) {
	for {
		changed := o.Changed(seen)
		if s := o.Now(); s.Revision > seen {
			return s, nil
		}
		select {
		case <-changed:
		case <-o.done:
			if s := o.Now(); s.Revision > seen {
				return s, nil
			}
			return Snapshot{}, ErrClosed
		case <-ctx.Done():
			return Snapshot{}, fmt.Errorf("observe: %w", context.Cause(ctx))
		}
	}
}

// Refresh looks at the disk and all else now, and returns the snapshot after it,
// which is the same as before if nothing has changed.
func (o *Observer) Refresh(ctx context.Context) (Snapshot, error) {
	looked := make(chan struct{})
	for ask, wait := o.asked, (chan struct{})(nil); ; {
		select {
		case ask <- looked:
			ask, wait = nil, looked
		case <-wait:
			return o.Now(), nil
		case <-o.done:
			return Snapshot{}, ErrClosed
		case <-ctx.Done():
			return Snapshot{}, fmt.Errorf("observe: %w", context.Cause(ctx))
		}
	}
}

// loop looks when something has changed, and at the disk when routes have, when it is
// asked, and every now and then.
func (o *Observer) loop(ctx context.Context) {
	defer close(o.done)
	var disk disk
	var inspected uint64 // the revision of the routes before the disk was looked at
	look := func() {
		inspected, _ = o.cfg.Routes.Snapshot()
		disk = o.inspect(ctx, o.cfg.Store)
	}
	look()
	tick := time.NewTicker(o.cfg.Every)
	defer tick.Stop()
	var looked chan struct{} // who waits for this look
	for ctx.Err() == nil {
		activitySeen, activity := o.cfg.Routes.Activity()
		_, routes := o.cfg.Routes.Snapshot()
		if !disk.interrupted() {
			o.publish(disk, composed(disk, routes, activity, o.cfg.Receipts()))
		}
		if looked != nil {
			close(looked)
			looked = nil
		}
		again := false // whether to look at the disk
		select {
		case <-o.cfg.Routes.ActivityChanged(activitySeen):
			looked, again = o.pause(ctx, tick.C, o.cfg.Routes.Changed(inspected))
		case <-tick.C:
			again = true
		case looked = <-o.asked:
			again = true
		case <-ctx.Done():
		}
		if again {
			look()
		}
	}
}

// pause lets changes gather for a moment, unless somebody asks. Every change of the
// routes is one of their activity, so it is noticed here.
func (o *Observer) pause(ctx context.Context, tick <-chan time.Time, routes <-chan struct{}) (looked chan struct{}, again bool) {
	t := time.NewTimer(gap)
	defer t.Stop()
	for {
		select {
		case <-routes:
			routes, again = nil, true
		case <-tick:
			again = true
		case looked = <-o.asked:
			return looked, true
		case <-t.C:
			return nil, again
		case <-ctx.Done():
			return nil, false
		}
	}
}

// publish replaces the newest snapshot if it says something new.
func (o *Observer) publish(d disk, all []Connection) {
	s := Snapshot{At: time.Now(), Connections: all}
	if d.err != nil {
		s.Problem = d.err.Error()
	}
	if s.More = len(all) - MaxConnections; s.More > 0 {
		s.Connections = all[:MaxConnections:MaxConnections]
	} else {
		s.More = 0
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.newest.Revision > 0 && o.newest.same(s) {
		return
	}
	s.Revision = o.newest.Revision + 1
	o.newest = s
	o.raised.Raise()
}
