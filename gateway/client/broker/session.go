package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lendcli/lend/gateway/client"
	"github.com/lendcli/lend/gateway/client/broker/notice"
	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/protocol"
	"github.com/lendcli/lend/protocol/name"
)

// session is what one invocation may use.
type session struct {
	text       string // the handle
	scope      scope  // of its first lease
	invocation name.InvocationID
	ctx        context.Context //nolint:containedctx // a session is a lifetime
	end        context.CancelCauseFunc
	board      notice.Board // of what its leases are, and what is known of them

	mu     sync.Mutex // guards what follows
	closed bool
	leases []*holding
	wg     sync.WaitGroup // calls
}

func newSession(ctx context.Context, text string, sc scope) *session {
	s := &session{text: text, scope: sc, invocation: sc.invocation}
	s.ctx, s.end = context.WithCancelCause(ctx)
	return s
}

// add takes h over; the same lease again replaces itself, with its newer addresses.
func (s *session) add(h *holding) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrNoSession
	}
	h.changed = s.board.Changed
	for i, have := range s.leases {
		if same(have.current(), h.current()) {
			s.wg.Go(have.leave)
			s.leases[i] = h
			s.board.Changed()
			return nil
		}
	}
	if len(s.leases) >= maxHoldings {
		return ErrFull
	}
	s.leases = append(s.leases, h)
	s.board.Changed()
	return nil
}

func same(a, b lease.File) bool { return slices.EqualFunc(a.Chain, b.Chain, slices.Equal) }

// begin lets a call in, until its end.
func (s *session) begin() (done func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrNoSession
	}
	s.wg.Add(1)
	return s.wg.Done, nil
}

func (s *session) all() []*holding {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.leases)
}

// remove tells whether h was the last.
func (s *session) remove(h *holding) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.leases, h); i >= 0 {
		s.leases = slices.Delete(s.leases, i, i+1)
		s.board.Changed()
		s.wg.Go(h.leave)
	}
	return len(s.leases) == 0
}

// sweep lets go of what has expired, and tells whether nothing is left.
func (s *session) sweep(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leases = slices.DeleteFunc(s.leases, func(h *holding) bool {
		if !h.expired(now) {
			return false
		}
		s.wg.Go(h.leave)
		s.board.Changed()
		return true
	})
	return len(s.leases) == 0 && !s.closed
}

// close cancels what runs and waits for it.
func (s *session) close() {
	s.mu.Lock()
	s.closed = true
	for _, h := range s.leases {
		s.wg.Go(h.leave)
	}
	s.leases = nil
	s.mu.Unlock()
	s.end(ErrSessionClosed)
	s.board.Changed()
	s.wg.Wait()
}

// holding is one lease, or a source of them, with the client that uses it.
type holding struct {
	broker *Broker
	source client.LeaseSource
	client *client.Client
	turns  chan struct{} // as many as the lease allows at once
	asking chan struct{} // held by who asks for the catalogue
	renews bool          // the source has newer ones
	users  sync.WaitGroup
	// changed tells its session; nil if it has none.
	changed func()

	mu      sync.Mutex // guards what follows
	left    bool       // nobody uses it any more
	file    lease.File // the newest
	entries []protocol.CatalogEntry
	fetched time.Time
}

// hold opens a lease and makes its client.
func (b *Broker) hold(ctx context.Context, source client.LeaseSource, renews bool, wait time.Duration) (*holding, error) {
	f, err := open(ctx, source)
	if err != nil {
		return nil, err
	}
	if err := f.Lease.Usable(b.holder, name.PeerID{}, b.config.Now()); err != nil {
		return nil, err
	}
	h := &holding{broker: b, source: source, renews: renews, file: f, turns: make(chan struct{}, max(1, int(f.Lease.MaxConcurrent))), asking: make(chan struct{}, 1)}
	h.client, err = client.New(client.Config{Host: b.host, Leases: h.renewed, Wait: wait, Log: b.config.Log, Now: b.config.Now})
	return h, err
}

func open(ctx context.Context, source client.LeaseSource) (lease.File, error) {
	f, err := source(ctx)
	if err != nil {
		return f, err
	}
	f.Lease, err = lease.Open(f.Chain)
	return f, err
}

var errOtherLease = errors.New("the source gave a lease of another gateway, issuer or invocation")

// renewed is the LeaseSource of the client.
func (h *holding) renewed(ctx context.Context) (lease.File, error) {
	f, err := open(ctx, h.source)
	if err != nil {
		return lease.File{}, fmt.Errorf("renew lease: %w", err)
	}
	was := h.current().Lease
	if f.Lease.Gateway != was.Gateway || f.Lease.Issuer != was.Issuer || f.Lease.Invocation != was.Invocation {
		return lease.File{}, errOtherLease
	}
	h.mu.Lock()
	other := !same(h.file, f)
	if h.file = f; other {
		h.entries = nil // it may allow something else
	}
	h.mu.Unlock()
	if other {
		h.tell()
	}
	f.Addresses = h.broker.addresses(f)
	return f, nil
}

// tell tells its session that something is to be known of it.
func (h *holding) tell() {
	if h.changed != nil {
		h.changed()
	}
}

func (h *holding) current() lease.File {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.file
}

// renewBefore is how long before its end a lease is asked for anew.
const renewBefore = time.Minute

// renew asks a source that renews for a newer lease, if this one ends soon.
func (h *holding) renew(ctx context.Context, now time.Time) {
	if !h.renews || !h.expired(now.Add(renewBefore)) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lookEvery)
	defer cancel()
	if _, err := h.renewed(ctx); err != nil {
		h.broker.config.Log.Warn().Str("problem", name.Show(err.Error())).Msg("lease not renewed")
	}
}

func (h *holding) expired(now time.Time) bool { return !now.Before(h.current().Lease.NotAfter) }

// use keeps the client open until done is called.
func (h *holding) use() (done func(), err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.left {
		return nil, ErrNoSession
	}
	h.users.Add(1)
	return h.users.Done, nil
}

// leave waits for the calls and closes the client.
func (h *holding) leave() {
	h.mu.Lock()
	h.left = true
	h.mu.Unlock()
	h.users.Wait()
	_ = h.client.Close() // the host is the broker's: nothing fails
}

// turn waits until the lease allows one more at once, for as long as a gateway that
// says so would be asked again; then the gateway decides.
func (h *holding) turn(ctx context.Context, wait time.Duration) (done func()) {
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case h.turns <- struct{}{}:
		return func() { <-h.turns }
	case <-ctx.Done():
	case <-t.C:
	}
	return func() {}
}

// catalogTime is how long a catalogue is believed; the gateway decides on each call.
const catalogTime = 30 * time.Second

// catalog asks the gateway, unless it has said so lately; with again it is asked if the
// answer is not of this moment. Many that ask at once are one question.
func (h *holding) catalog(ctx context.Context, again bool) ([]protocol.CatalogEntry, error) {
	if entries := h.known(again); entries != nil {
		return entries, nil
	}
	select {
	case h.asking <- struct{}{}:
		defer func() { <-h.asking }()
	case <-ctx.Done():
		return nil, fmt.Errorf("list what is lent: %w", context.Cause(ctx))
	}
	if entries := h.known(again); entries != nil {
		return entries, nil
	}
	entries, err := h.client.Catalog(ctx)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.entries, h.fetched = slices.Clip(append([]protocol.CatalogEntry{}, entries...)), time.Now()
	return h.entries, nil
}

// known is the catalogue, if it was asked for lately; else nil.
func (h *holding) known(again bool) []protocol.CatalogEntry {
	h.mu.Lock()
	defer h.mu.Unlock()
	if age := time.Since(h.fetched); age >= catalogTime || again && age >= time.Second {
		return nil
	}
	return h.entries
}

// forgetCatalog has it asked for again.
func (h *holding) forgetCatalog() {
	h.mu.Lock()
	h.entries = nil
	h.mu.Unlock()
	h.tell()
}
