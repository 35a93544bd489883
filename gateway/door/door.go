package door

import (
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	"golang.org/x/time/rate"

	"github.com/lendcli/lend/policy"
	"github.com/lendcli/lend/protocol"
	"github.com/lendcli/lend/protocol/name"
)

// Bounds of what a peer may hold without having shown a lease.
const (
	MaxStrangers  = 16
	StrangerGrace = 5 * time.Second
	MaxUnread     = 16 // streams without a complete first frame, a peer

	// RetryBusy is the hint that goes with BUSY.
	RetryBusy = 500 * time.Millisecond
)

// Door counts what each peer holds, and says who may come in. Methods are safe for
// concurrent use.
type Door struct {
	// Grace is how long a stranger may stay without a lease. It may be changed
	// before the first connection.
	Grace      time.Duration
	disconnect func(peer.ID)

	mu      sync.Mutex // guards all that follows
	policy  *policy.Policy
	known   map[peer.ID]*peerState
	running int // operations in all, starting ones included
	closed  bool
}

// peerState is one peer's. It is kept while the peer holds anything, and until
// its bucket of starts is full again.
type peerState struct {
	conns   int
	unread  int
	running int
	proved  bool        // a stranger that has shown a lease
	expires *time.Timer // for a stranger that has not
	starts  *rate.Limiter
}

// New returns a door that p guards. disconnect closes all connections of a peer;
// it is called without a lock.
func New(p *policy.Policy, disconnect func(peer.ID)) *Door {
	return &Door{disconnect: disconnect, Grace: StrangerGrace, policy: p, known: map[peer.ID]*peerState{}}
}

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
		return known != nil && (known.proved || known.conns > 0) || d.strangersLocked() < MaxStrangers
	case policy.AdmitNone:
	}
	return false
}

// stranger tells whether the policy does not name p.
func (d *Door) stranger(p peer.ID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	n, ok := PeerName(p)
	return !ok || d.policy.Admission(n) != policy.AdmitNamed
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
		perMinute := max(1, LimitsOf(d.policy).StartsPerMinute)
		st = &peerState{starts: rate.NewLimiter(rate.Limit(float64(perMinute)/60), perMinute)}
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
	st := d.getLocked(p)
	st.conns++
	if d.policy.Admission(n) != policy.AdmitNamed && !st.proved && st.expires == nil && !d.closed {
		grace := d.Grace
		if d.strangersLocked() >= MaxStrangers {
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
	st.proved = false
	if st.unread == 0 && st.running == 0 && st.starts.Tokens() >= float64(st.starts.Burst()) {
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
	switch {
	case st.running >= limits.OperationsPerPeer, d.running >= limits.Operations:
		return nil, &protocol.Refusal{Code: protocol.CodeBusy, RetryAfter: RetryBusy}
	case !st.starts.Allow():
		wait := time.Minute / time.Duration(max(1, limits.StartsPerMinute))
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

// Swap makes p the policy.
func (d *Door) Swap(p *policy.Policy) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.policy = p
	perMinute := max(1, LimitsOf(p).StartsPerMinute)
	for _, st := range d.known {
		st.starts.SetLimit(rate.Limit(float64(perMinute) / 60))
		st.starts.SetBurst(perMinute)
	}
}

// Unwelcome returns the connected peers that the policy does not admit.
func (d *Door) Unwelcome() (out []peer.ID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for id, st := range d.known {
		n, ok := PeerName(id)
		a := d.policy.Admission(n)
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
