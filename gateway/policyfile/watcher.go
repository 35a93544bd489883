package policyfile

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/lendcli/lend/gateway/ledger"
	"github.com/lendcli/lend/policy"
	"github.com/lendcli/lend/protocol/name"
)

// Times of a Watcher, where Config names none.
const (
	DefaultSettle = 200 * time.Millisecond
	DefaultPoll   = 2 * time.Second

	gather   = 30 * time.Millisecond // from a change to the first look
	patience = 10 * time.Second      // for a file that does not come to rest
)

// State says which policy holds.
type State uint8

// The states. The texts are those of the owner's status.
const (
	InForce  State = iota // "in force": what the file says
	LastGood              // "last good": the file is bad, what it said before holds
	Missing               // "missing": there is no file; new work is denied
)

// String returns the text that an owner reads.
func (s State) String() string {
	switch s {
	case InForce:
		return "in force"
	case LastGood:
		return "last good"
	case Missing:
	}
	return "missing"
}

// Gateway is what a Watcher tells; *gateway.Node is one. It is called by one
// goroutine.
type Gateway interface {
	// Reload makes a policy the one in force and records it.
	Reload(p *policy.Policy)
	// Suspend denies new work until the next Reload and records it.
	Suspend()
	// Record writes an event.
	Record(e ledger.Event)
}

// Config is what New needs. All but the last three fields must be set.
type Config struct {
	// File is the path that is watched, and that positions name.
	File string
	// Read returns the whole file, if only the owner can have written it. A file that
	// is not there is os.ErrNotExist; every other error rejects.
	Read func() ([]byte, error)
	// Contracts are those of the Connectors now; an error rejects.
	Contracts func() (policy.Contracts, error)
	// Gateway has InForce when New is called.
	Gateway Gateway
	InForce *policy.Policy
	// Log gets a line for each change, those that are bad at level error.
	Log zerolog.Logger
	// Settle is how long a file must stay the same, Poll how often it is read
	// whatever happens; 0 means the defaults.
	Settle, Poll time.Duration
}

// Status is what holds, and why it is not the file.
type Status struct {
	State State
	// Digest is of the policy that holds, or held before the file was missing.
	Digest string
	// Loaded is when it was taken up.
	Loaded time.Time
	// Problem says why the file is not in force: printable, at most about 250 bytes;
	// empty where it is.
	Problem string
	// Since is when State, or Problem, came to be.
	Since time.Time
}

// Watcher follows one file. Its methods are safe for concurrent use.
type Watcher struct {
	cfg    Config
	notify notifier
	check  chan struct{}
	cancel context.CancelFunc
	done   chan struct{}

	inForce *policy.Policy // the last good one
	known   string         // the reading that Status is about
	bad     string         // the reading that was rejected last, until another outcome
	trial   *trial         // a reading that has yet to count
	deaf    bool           // nothing is armed
	looks   atomic.Int64   // how often the file was read

	mu     sync.Mutex // guards status
	status Status
}

// trial is a reading that is waited for to count.
type trial struct {
	key          string
	first, since time.Time // of the trial, and of this key
	asked        bool      // by Check: known ones count, too
}

// New starts to watch. The caller must Close it, before the Gateway. The ledger gets
// policy.loaded for what is in force.
func New(cfg Config) *Watcher { return start(cfg, newWatch()) }

func start(cfg Config, n notifier) *Watcher {
	if cfg.Settle == 0 {
		cfg.Settle = DefaultSettle
	}
	if cfg.Poll == 0 {
		cfg.Poll = DefaultPoll
	}
	ctx, cancel := context.WithCancel(context.Background())
	now := time.Now()
	w := &Watcher{
		cfg: cfg, notify: n, check: make(chan struct{}, 1), cancel: cancel, done: make(chan struct{}),
		inForce: cfg.InForce, known: cfg.InForce.Digest(),
		status: Status{Digest: cfg.InForce.Digest(), Loaded: now, Since: now},
	}
	cfg.Gateway.Record(ledger.Event{Name: "policy.loaded", Facts: w.facts()})
	go w.run(ctx)
	return w
}

// Check reads and judges the file soon, even if it has not changed: the Connectors
// may have. A policy that is in force and still good is left alone. It does not wait.
func (w *Watcher) Check() {
	select {
	case w.check <- struct{}{}:
	default:
	}
}

// Status returns what holds.
func (w *Watcher) Status() Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.status
}

// Close stops watching and returns when nobody is told anything any more. It is
// idempotent.
func (w *Watcher) Close() error {
	w.cancel()
	<-w.done
	return nil
}

func (w *Watcher) run(ctx context.Context) {
	defer close(w.done)
	defer func() {
		if err := w.notify.close(); err != nil {
			w.cfg.Log.Debug().Err(err).Msg("watch of the policy not closed well")
		}
	}()
	poll := time.NewTicker(w.cfg.Poll)
	defer poll.Stop()
	wait := time.NewTimer(0) // what came between the first reading and now
	defer wait.Stop()
	asked := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.check:
			asked = true
			wait.Reset(0)
			continue
		case <-w.notify.changed():
			if w.trial == nil {
				wait.Reset(gather)
			}
			continue
		case <-poll.C:
			if w.trial != nil {
				continue
			}
		case <-wait.C:
		}
		again := w.look(asked)
		asked = false
		if again {
			wait.Reset(w.cfg.Settle)
		}
	}
}

// reading is the file at one moment.
type reading struct {
	key  string // the same for the same content, or the same error
	data []byte
	err  error
}

func (w *Watcher) read() reading {
	data, err := w.cfg.Read()
	if err != nil {
		return reading{key: "error " + err.Error(), err: err}
	}
	sum := sha256.Sum256(data)
	return reading{key: hex.EncodeToString(sum[:]), data: data}
}

// look reads the file once, and tells whether it must be looked at again soon.
func (w *Watcher) look(asked bool) (again bool) {
	defer w.looks.Add(1)
	w.arm() // before reading: what comes later is noticed
	writing := busy(w.cfg.File)
	r := w.read()
	writing = writing || busy(w.cfg.File)
	now := time.Now()
	t := w.trial
	if t == nil {
		if r.key == w.known && !asked {
			return false
		}
		t = &trial{key: r.key, first: now, since: now}
		w.trial = t
	}
	t.asked = t.asked || asked
	if t.key != r.key || writing {
		t.key, t.since = r.key, now
	}
	switch {
	case r.key == w.known && !t.asked:
		w.trial = nil // it was a moment's
		return false
	case now.Sub(t.since) >= w.cfg.Settle, r.key == w.known && !writing: // known: it has been at rest
		w.trial, w.known = nil, r.key
		w.settled(r, now)
		return false
	case now.Sub(t.first) >= patience:
		w.trial, w.known = nil, restless
		w.reject(errRestless, now)
		return false
	}
	return true
}

// restless is known of a file after a trial that came to nothing: no reading is it.
const restless = "restless"

var errRestless = errors.New("the file is being written and does not come to rest")

// arm keeps the watch on the right directories.
func (w *Watcher) arm() {
	err := w.notify.arm(w.cfg.File)
	switch {
	case err != nil && !w.deaf:
		w.cfg.Log.Warn().Str("problem", name.Show(err.Error())).Msg("the policy cannot be watched; it is read every few seconds")
		w.cfg.Gateway.Record(ledger.Event{Name: "degraded", Facts: map[string]string{"what": "the policy is read every few seconds only"}})
	case err == nil && w.deaf:
		w.cfg.Log.Info().Msg("the policy is watched again")
		w.cfg.Gateway.Record(ledger.Event{Name: "recovered", Facts: map[string]string{"what": "the policy is watched"}})
	}
	w.deaf = err != nil
}

// settled tells what a reading that counts means.
func (w *Watcher) settled(r reading, now time.Time) {
	switch {
	case errors.Is(r.err, os.ErrNotExist):
		w.missing(now)
		return
	case r.err != nil:
		w.reject(r.err, now)
		return
	}
	p, err := judge(w.cfg.File, r.data, w.cfg.Contracts)
	if err != nil {
		w.reject(err, now)
		return
	}
	w.accept(p, now)
}

func (w *Watcher) accept(p *policy.Policy, now time.Time) {
	was := w.Status()
	same := p.Digest() == w.inForce.Digest()
	if same && was.State == InForce {
		w.cfg.Log.Info().Str("policy", p.Digest()).Msg("policy unchanged")
		return
	}
	s := Status{Digest: p.Digest(), Loaded: now, Since: now}
	if same {
		s.Loaded = was.Loaded
	}
	w.inForce, w.bad = p, ""
	if same && was.State == LastGood { // the gateway has it
		w.cfg.Log.Info().Str("policy", p.Digest()).Msg("the policy in force is in the file again")
		w.cfg.Gateway.Record(ledger.Event{Name: "policy.restored", Facts: w.facts()})
	} else {
		w.cfg.Gateway.Reload(p)
	}
	w.set(s)
}

// reject keeps what holds. The same problem of the same reading is told once.
func (w *Watcher) reject(err error, now time.Time) {
	s := w.Status()
	if s.Problem == short(err) && w.bad == w.known {
		return
	}
	if s.State == InForce {
		s.State = LastGood
	}
	w.bad, s.Problem, s.Since = w.known, short(err), now
	w.cfg.Log.Error().Str("file", name.Show(w.cfg.File)).Str("problem", s.Problem).Str("policy", s.Digest).Stringer("state", s.State).
		Msg("policy rejected: the file is not in force")
	facts := map[string]string{"problem": s.Problem}
	if len(w.known) == hex.EncodedLen(sha256.Size) {
		facts["digest"] = w.known
	}
	w.cfg.Gateway.Record(ledger.Event{Name: "policy.rejected", Facts: facts})
	w.set(s)
}

func (w *Watcher) missing(now time.Time) {
	s := w.Status()
	if s.State == Missing && w.bad == "" {
		return
	}
	w.bad = ""
	s.State, s.Problem, s.Since = Missing, "there is no "+name.Show(w.cfg.File), now
	w.cfg.Gateway.Suspend()
	w.set(s)
}

// set publishes the status, once the gateway has been told.
func (w *Watcher) set(s Status) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.status = s
}

func (w *Watcher) facts() map[string]string {
	return map[string]string{"digest": w.inForce.Digest(), "file": name.Show(w.cfg.File)}
}
