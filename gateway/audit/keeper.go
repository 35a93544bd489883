package audit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/lendcli/lend/gateway/ledger"
)

// Times of a Keeper, where its KeeperConfig says nothing.
const (
	keepEvery  = time.Minute
	patience   = 30 * time.Second
	lastBudget = 10 * time.Second // for the last checkpoint, in Close
)

// KeeperConfig is what NewKeeper needs. It must not be changed after it.
type KeeperConfig struct {
	// Sign makes all durable that was recorded, and signs it; Size is how many
	// records there are. Both are the ledger's.
	Sign func() ([]byte, error)
	Size func() uint64
	// Key is the ledger's verification key.
	Key string
	// Places are where each checkpoint goes; none means that checkpoints are only
	// signed, and shown.
	Places []Place
	// Every is how often a checkpoint is signed if there is anything new; 0 means a
	// minute. Patience is how long a place may take; 0 means 30 s.
	Every, Patience time.Duration
	// Event records what the owner should find in the audit; nil drops it.
	Event func(ledger.Event)
	// Log gets the same. The zero value is silent.
	Log zerolog.Logger
}

// Keeper signs checkpoints and has them kept. Its methods are safe for concurrent
// use, and none but Close waits for a place for long. The caller must Close it,
// before the ledger.
type Keeper struct {
	cfg     KeeperConfig
	ctx     context.Context //nolint:containedctx // the Keeper is a lifetime: it ends the calls of places
	cancel  context.CancelFunc
	closing chan struct{}
	once    sync.Once
	ticker  sync.WaitGroup
	keepers sync.WaitGroup
	places  []*place

	signing sync.Mutex // held while a checkpoint is signed and handed over; guards closed
	closed  bool

	mu     sync.Mutex // guards what follows, and events.Add against events.Wait
	newest Checkpoint
	last   bool           // no event is recorded any more
	events sync.WaitGroup // those that are being recorded
}

// Checkpoint is a signed state of the ledger.
type Checkpoint struct {
	Signed  string // in C2SP form
	Records uint64
	At      time.Time
}

// PlaceStatus says what a place has.
type PlaceStatus struct {
	Name    string
	Records uint64    // of the newest checkpoint that is kept there; 0: none yet
	At      time.Time // when that was kept
	// Problem says why it does not have the newest; "" while it does, or will.
	Problem string
	Since   time.Time // of the problem
}

// place is one Place with the goroutine that serves it.
type place struct {
	Place
	wait chan job // at most one: the newest

	mu            sync.Mutex // guards what follows
	status        PlaceStatus
	proof         bool      // the problem is what is kept there
	busy          time.Time // since when a call lasts
	offered, done uint64    // the last job that was offered, and that was over
}

// job is a checkpoint for a place, counted.
type job struct {
	Checkpoint
	number uint64
}

// NewKeeper starts to keep checkpoints.
func NewKeeper(c KeeperConfig) *Keeper {
	if c.Every == 0 {
		c.Every = keepEvery
	}
	if c.Patience == 0 {
		c.Patience = patience
	}
	if c.Event == nil {
		c.Event = func(ledger.Event) {}
	}
	k := &Keeper{cfg: c, closing: make(chan struct{})}
	k.ctx, k.cancel = context.WithCancel(context.Background())
	for _, p := range c.Places {
		pl := &place{Place: p, wait: make(chan job, 1), status: PlaceStatus{Name: p.Name}}
		k.places = append(k.places, pl)
		k.keepers.Go(func() { k.serve(pl) })
	}
	k.ticker.Go(k.run)
	return k
}

// run signs what is new, and looks after the places.
func (k *Keeper) run() {
	tick := time.NewTicker(k.cfg.Every)
	defer tick.Stop()
	for {
		if err := k.round(false); err != nil {
			k.cfg.Log.Error().Err(err).Msg("no checkpoint of the ledger")
		}
		select {
		case <-k.closing:
			return
		case <-tick.C:
		}
	}
}

// round signs a checkpoint if there is something new, or if that is asked for, and
// hands the newest to each place that does not have it.
func (k *Keeper) round(asked bool) error {
	k.signing.Lock()
	defer k.signing.Unlock()
	if k.closed {
		return os.ErrClosed
	}
	k.mu.Lock()
	newest := k.newest
	k.mu.Unlock()
	if size := k.cfg.Size(); size > newest.Records || asked {
		signed, err := k.cfg.Sign()
		if err != nil {
			return err
		}
		newest = Checkpoint{Signed: string(signed), Records: sizeOf(signed), At: time.Now()}
		k.mu.Lock()
		k.newest = newest
		k.mu.Unlock()
	}
	for _, p := range k.places {
		k.offer(p, newest)
	}
	return nil
}

// sizeOf reads the number of records, the second line of what the ledger signed.
func sizeOf(signed []byte) uint64 {
	lines := strings.SplitN(string(signed), "\n", 3)
	if len(lines) < 3 {
		return 0
	}
	n, _ := strconv.ParseUint(lines[1], 10, 64)
	return n
}

// offer puts a checkpoint where a place will find it, instead of an older one. Only
// the holder of signing offers, so there is room after the older one was taken away.
func (k *Keeper) offer(p *place, c Checkpoint) {
	p.mu.Lock()
	has, busy := p.status.Records >= c.Records && p.status.Problem == "", p.busy
	if !has {
		p.offered++
	}
	next := job{c, p.offered}
	p.mu.Unlock()
	if has {
		return
	}
	if !busy.IsZero() && time.Since(busy) > k.cfg.Patience {
		k.trouble(p, errStuck)
	}
	select {
	case <-p.wait:
	default:
	}
	p.wait <- next
}

var errStuck = errors.New("it does not return")

// serve keeps one checkpoint after the other in a place.
func (k *Keeper) serve(p *place) {
	for c := range p.wait {
		p.begin()
		ctx, cancel := context.WithTimeout(k.ctx, k.cfg.Patience)
		err := p.Keep(ctx, []byte(c.Signed))
		if err == nil {
			k.kept(p, c.Checkpoint)
		} else {
			k.trouble(p, err)
		}
		cancel()
		p.finish(c.number)
	}
}

func (p *place) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.busy = time.Now()
}

func (p *place) finish(number uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.busy, p.done = time.Time{}, number
}

// kept says that a place has a checkpoint: in the record only where that is news,
// since each record wants a checkpoint of its own.
func (k *Keeper) kept(p *place, c Checkpoint) {
	p.mu.Lock()
	first, was := p.status.Records == 0, p.status.Problem
	p.status, p.proof = PlaceStatus{Name: p.Name, Records: c.Records, At: time.Now()}, false
	p.mu.Unlock()
	k.cfg.Log.Debug().Str("where", p.Name).Uint64("records", c.Records).Msg("checkpoint kept")
	switch {
	case was != "":
		k.cfg.Log.Info().Str("where", p.Name).Msg("checkpoints are kept again")
		k.event(ledger.Event{Name: "recovered", Facts: map[string]string{"what": "checkpoints", "where": p.Name}})
	case first:
		k.event(ledger.Event{Name: "checkpoint.kept", Facts: map[string]string{"where": p.Name, "records": strconv.FormatUint(c.Records, 10)}})
	}
}

// trouble says that a place does not keep: once, until it does again, and once more
// if the reason becomes what is kept there.
func (k *Keeper) trouble(p *place, err error) {
	text := escaped(err.Error())
	p.mu.Lock()
	first, news := p.status.Problem == "", proof(err) && !p.proof
	if first {
		p.status.Since = time.Now()
	}
	p.status.Problem, p.proof = text, p.proof || news
	p.mu.Unlock()
	if !first && !news {
		return
	}
	k.cfg.Log.Error().Str("where", p.Name).Str("cause", text).Msg("checkpoints are not kept")
	k.event(ledger.Event{Name: "degraded", Facts: map[string]string{"what": "checkpoints", "where": p.Name, "problem": text}})
}

// event records, unless the last checkpoint is being made: it covers all.
func (k *Keeper) event(e ledger.Event) {
	k.mu.Lock()
	if k.last {
		k.mu.Unlock()
		return
	}
	k.events.Add(1)
	k.mu.Unlock()
	defer k.events.Done()
	k.cfg.Event(e)
}

// Now signs a checkpoint of all that was recorded, and waits until each place has
// kept it or has a problem, or ctx is done.
func (k *Keeper) Now(ctx context.Context) (Checkpoint, error) {
	if err := k.round(true); err != nil {
		return Checkpoint{}, fmt.Errorf("make checkpoint: %w", err)
	}
	c, upTo := k.Newest(), k.jobs()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !k.over(upTo) {
		select {
		case <-ctx.Done():
			return c, nil
		case <-k.closing:
			return c, nil
		case <-tick.C:
		}
	}
	return c, nil
}

// jobs are the last ones that were offered, place by place.
func (k *Keeper) jobs() []uint64 {
	out := make([]uint64, len(k.places))
	for i, p := range k.places {
		p.mu.Lock()
		out[i] = p.offered
		p.mu.Unlock()
	}
	return out
}

// over tells whether each place is done with its job, or a later one.
func (k *Keeper) over(jobs []uint64) bool {
	for i, p := range k.places {
		p.mu.Lock()
		done := p.done >= jobs[i]
		p.mu.Unlock()
		if !done {
			return false
		}
	}
	return true
}

// Newest is the newest checkpoint that was signed; its zero value before the first.
func (k *Keeper) Newest() Checkpoint {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.newest
}

// Key is the ledger's verification key.
func (k *Keeper) Key() string { return k.cfg.Key }

// Places says what each place has, in the order of KeeperConfig.
func (k *Keeper) Places() []PlaceStatus {
	out := make([]PlaceStatus, len(k.places))
	for i, p := range k.places {
		p.mu.Lock()
		out[i] = p.status
		p.mu.Unlock()
	}
	return out
}

// Close signs a last checkpoint of what was recorded, gives each place 10 s to keep
// it, and ends. A place that does not listen to its context is left alone, and the
// error says so. It is idempotent.
func (k *Keeper) Close() error {
	var err error
	k.once.Do(func() {
		close(k.closing)
		k.ticker.Wait()
		k.mu.Lock()
		k.last = true
		k.mu.Unlock()
		k.events.Wait()
		err = k.round(false)
		k.signing.Lock()
		k.closed = true
		for _, p := range k.places {
			close(p.wait)
		}
		k.signing.Unlock()
		if err = errors.Join(err, k.finish()); err != nil {
			k.cfg.Log.Error().Err(err).Msg("the last checkpoint is not kept everywhere")
		}
	})
	return err
}

// finish waits for the places.
func (k *Keeper) finish() error {
	done := make(chan struct{})
	go func() { k.keepers.Wait(); close(done) }()
	budget := time.AfterFunc(lastBudget, k.cancel)
	defer budget.Stop()
	last := time.NewTimer(lastBudget + time.Second)
	defer last.Stop()
	defer k.cancel()
	select {
	case <-done:
	case <-last.C:
		return fmt.Errorf("keep the last checkpoint: %w", errStuck)
	}
	for _, p := range k.Places() {
		if p.Problem != "" {
			return fmt.Errorf("keep the last checkpoint in %s: %s", p.Name, p.Problem)
		}
	}
	return nil
}
