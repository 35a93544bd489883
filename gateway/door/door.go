package door

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/lendcli/lend/policy"
	"github.com/lendcli/lend/protocol"
	"github.com/lendcli/lend/protocol/name"
)

// Door counts what each peer holds, and says who may come in. Methods are safe for
// concurrent use.
type Door struct {
	// Grace is how long a stranger may stay without a lease. It may be changed
	// before the first connection.
	Grace      time.Duration
	disconnect func(peer.ID)
	now        func() time.Time
	transport  atomic.Pointer[Transport]
	turned     atomic.Uint64 // connections that were not let in

	mu      sync.Mutex // guards all that follows
	policy  *policy.Policy
	known   map[peer.ID]*peerState
	running int // operations in all, starting ones included
	pool    debt
	trickle time.Time // before it no stranger comes in, while pool is in debt
	closed  bool
	invites bool // guests may come in
}

// peerState is one peer's. It is kept while the peer holds anything, until none of its
// starts counts any more and, if it has a name, until its penalties are
// forgotten.
type peerState struct {
	conns   int
	unread  int
	running int
	proved  bool        // a stranger that has shown a lease
	expires *time.Timer // for a stranger that has not
	starts  pace
	debt    debt
	// remembered: debt outlives what the peer holds.
	remembered bool
	// welcome: the policy admitted it when it connected; kept: it has an invitation.
	welcome, kept bool
}

// New returns a door that p guards. disconnect closes all connections of a peer;
// it is called without a lock.
func New(p *policy.Policy, disconnect func(peer.ID)) *Door {
	d := &Door{
		disconnect: disconnect, Grace: StrangerGrace, now: time.Now,
		policy: p, known: map[peer.ID]*peerState{},
	}
	d.derive(p)
	return d
}

// derive sets the bounds of the transport. Without a policy nothing comes in.
func (d *Door) derive(p *policy.Policy) {
	t := TransportOf(LimitsOf(p))
	d.transport.Store(&t)
}

// Transport returns the bounds of the transport that are in force.
func (d *Door) Transport() Transport { return *d.transport.Load() }

// LimitsOf are the limits of p; nothing runs without one.
func LimitsOf(p *policy.Policy) policy.Limits {
	if p == nil {
		return policy.Limits{}
	}
	return p.Limits()
}

// PeerName is the checked name of a libp2p peer ID; only Ed25519 keys have one.
func PeerName(p peer.ID) (name.PeerID, bool) {
	n, err := name.ParsePeerID(p.String())
	return n, err == nil
}

// admit answers the connection gater.
func (d *Door) admit(p peer.ID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	n, ok := PeerName(p)
	if !ok || d.closed {
		return false
	}
	switch d.policy.Admission(n) {
	case policy.AdmitNamed:
		return true
	case policy.AdmitStranger:
		known := d.known[p]
		if known != nil && (known.proved || known.conns > 0 || known.running > 0) {
			return true
		}
		return d.poolLocked(d.now())
	case policy.AdmitNone:
		return d.guestLocked(p)
	}
	return false
}

// poolLocked tells whether one more stranger may come in. While strangers pay for what
// others of them did, one may try now and then.
func (d *Door) poolLocked(now time.Time) bool {
	most := MaxStrangers
	if d.pool.rest(now) > 0 {
		if most = penitents; now.Before(d.trickle) {
			return false
		}
		d.trickle = now.Add(trickleEvery)
	}
	return d.strangersLocked() < most
}

// stranger tells whether the policy does not name p.
func (d *Door) stranger(p peer.ID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	n, _ := PeerName(p) // a key without a name is the zero name, which no policy names
	return d.policy.Admission(n) != policy.AdmitNamed
}

func (d *Door) strangersLocked() (n int) {
	for _, st := range d.known {
		if st.expires != nil && st.conns > 0 {
			n++
		}
	}
	return n
}

func (d *Door) getLocked(p peer.ID) *peerState {
	st := d.known[p]
	if st == nil {
		st = &peerState{}
		d.known[p] = st
	}
	return st
}

// connected counts a connection. Strangers get a few seconds to show a lease.
func (d *Door) connected(p peer.ID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n, ok := PeerName(p)
	if !ok {
		return
	}
	st, admission := d.getLocked(p), d.policy.Admission(n)
	st.conns++
	st.welcome = st.welcome || admission != policy.AdmitNone
	if admission != policy.AdmitNamed && !st.proved && !st.kept && st.expires == nil && !d.closed {
		grace := d.Grace
		if !st.welcome {
			grace = d.graceLocked()
		} else if d.strangersLocked() >= MaxStrangers {
			grace = 0
		}
		st.expires = time.AfterFunc(grace, func() { d.disconnect(p) })
	}
}

func (d *Door) disconnected(p peer.ID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if st := d.known[p]; st != nil {
		st.conns--
		d.pruneLocked(p, st)
	}
}

// Proved says that the peer has shown a lease that verifies.
func (d *Door) Proved(p peer.ID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if st := d.known[p]; st != nil {
		st.proved = true
		st.debt.owed = time.Time{}
		st.stopTimer()
	}
}

func (st *peerState) stopTimer() {
	if st.expires != nil {
		st.expires.Stop()
		st.expires = nil
	}
}

func (d *Door) pruneLocked(p peer.ID, st *peerState) {
	if st.conns > 0 {
		return
	}
	st.stopTimer()
	st.proved, st.welcome, st.kept = false, false, false
	if st.unread > 0 || st.running > 0 {
		return
	}
	now := d.now()
	owes := st.remembered && !st.debt.forgotten(now)
	if !owes && st.starts.idle(now) || len(d.known) > maxRemembered {
		delete(d.known, p)
	}
}

// Prune forgets peers that hold nothing any more.
func (d *Door) Prune() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for p, st := range d.known {
		d.pruneLocked(p, st)
	}
}

// Reading counts a stream whose first frame is not read yet; done must be called
// if ok; again does nothing.
func (d *Door) Reading(p peer.ID) (done func(), ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	st := d.getLocked(p)
	if st.unread >= MaxUnread {
		return nil, false
	}
	st.unread++
	return sync.OnceFunc(func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		st.unread--
	}), true
}

// Unread returns how many streams of a peer have no complete first frame yet.
func (d *Door) Unread(p peer.ID) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if st := d.known[p]; st != nil {
		return st.unread
	}
	return 0
}

// Slot counts a start and a running operation against the limits. The error is
// a *protocol.Refusal; release must be called once otherwise.
func (d *Door) Slot(p peer.ID) (release func(), err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	st, limits := d.getLocked(p), LimitsOf(d.policy)
	most := limits.Operations
	if st.running > 0 {
		most -= reserve(limits)
	}
	if st.running >= limits.OperationsPerPeer || d.running >= most {
		return nil, &protocol.Refusal{Code: protocol.CodeBusy, RetryAfter: RetryBusy}
	}
	if wait := st.starts.take(d.now(), max(1, limits.StartsPerMinute)); wait > 0 {
		return nil, &protocol.Refusal{Code: protocol.CodeRateLimited, RetryAfter: wait}
	}
	st.running++
	d.running++
	var once sync.Once
	return func() {
		once.Do(func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			st.running--
			d.running--
			d.pruneLocked(p, st)
		})
	}, nil
}

// reserve is how many operations are left for peers that have none, so that a few
// busy ones cannot keep all others out. One peer alone can have what it may.
func reserve(l policy.Limits) int {
	return max(0, min(l.Operations/reservedShare, l.Operations-l.OperationsPerPeer))
}

// Swap makes p the policy.
func (d *Door) Swap(p *policy.Policy) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.policy = p
	d.derive(p)
	for id, st := range d.known { // a stranger that has a name now may stay
		if n, ok := PeerName(id); ok && p.Admission(n) == policy.AdmitNamed {
			st.stopTimer()
			st.welcome = true
		}
	}
}

// Unwelcome returns the connected peers that the policy does not admit.
func (d *Door) Unwelcome() (out []peer.ID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for id, st := range d.known {
		n, ok := PeerName(id)
		a := d.policy.Admission(n)
		if d.invites && (st.kept || a == policy.AdmitNone && !st.welcome) {
			continue // a guest: its time is bounded
		}
		if st.conns > 0 && (!ok || a == policy.AdmitNone || a == policy.AdmitStranger && !st.proved && st.expires == nil) {
			out = append(out, id)
		}
	}
	return out
}

// Close lets nobody in any more, and stops the timers.
func (d *Door) Close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	for _, st := range d.known {
		st.stopTimer()
	}
}
