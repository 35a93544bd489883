package gateway

import (
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"golang.org/x/time/rate"

	"github.com/lendcli/lend/policy"
	"github.com/lendcli/lend/protocol"
	"github.com/lendcli/lend/protocol/name"
)

// Bounds of what a peer may hold without having shown a lease.
const (
	maxStrangers  = 16
	strangerGrace = 5 * time.Second
	maxUnread     = 16 // streams without a complete first frame, a peer
)

// peers counts what each peer holds. Methods are safe for concurrent use.
type peers struct {
	// disconnect closes all connections of a peer; it is called without the lock.
	disconnect func(peer.ID)
	grace      time.Duration // of strangers

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

func newPeers(p *policy.Policy, disconnect func(peer.ID)) *peers {
	return &peers{disconnect: disconnect, grace: strangerGrace, policy: p, known: map[peer.ID]*peerState{}}
}

// limitsOf are the limits of p; nothing runs without one.
func limitsOf(p *policy.Policy) policy.Limits {
	if p == nil {
		return policy.Limits{}
	}
	return p.Limits()
}

// peerName is the checked name of a libp2p peer ID; only Ed25519 keys have one.
func peerName(p peer.ID) (name.PeerID, bool) {
	n, err := name.ParsePeerID(p.String())
	return n, err == nil
}

// admit answers the connection gater.
func (s *peers) admit(p peer.ID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, ok := peerName(p)
	if !ok || s.closed {
		return false
	}
	switch s.policy.Admission(n) {
	case policy.AdmitNamed:
		return true
	case policy.AdmitStranger:
		known := s.known[p]
		return known != nil && (known.proved || known.conns > 0) || s.strangersLocked() < maxStrangers
	case policy.AdmitNone:
	}
	return false
}

func (s *peers) strangersLocked() (n int) {
	for _, st := range s.known {
		if st.expires != nil && st.conns > 0 {
			n++
		}
	}
	return n
}

func (s *peers) getLocked(p peer.ID) *peerState {
	st := s.known[p]
	if st == nil {
		perMinute := max(1, limitsOf(s.policy).StartsPerMinute)
		st = &peerState{starts: rate.NewLimiter(rate.Limit(float64(perMinute)/60), perMinute)}
		s.known[p] = st
	}
	return st
}

// connected counts a connection. Strangers get a few seconds to show a lease.
func (s *peers) connected(p peer.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, ok := peerName(p)
	if !ok {
		return
	}
	st := s.getLocked(p)
	st.conns++
	if s.policy.Admission(n) != policy.AdmitNamed && !st.proved && st.expires == nil && !s.closed {
		grace := s.grace
		if s.strangersLocked() >= maxStrangers {
			grace = 0
		}
		st.expires = time.AfterFunc(grace, func() { s.disconnect(p) })
	}
}

func (s *peers) disconnected(p peer.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st := s.known[p]; st != nil {
		st.conns--
		s.pruneLocked(p, st)
	}
}

// proved says that the peer has shown a lease that verifies.
func (s *peers) proved(p peer.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st := s.known[p]; st != nil {
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

func (s *peers) pruneLocked(p peer.ID, st *peerState) {
	if st.conns > 0 {
		return
	}
	st.stopTimer()
	st.proved = false
	if st.unread == 0 && st.running == 0 && st.starts.Tokens() >= float64(st.starts.Burst()) {
		delete(s.known, p)
	}
}

// prune forgets peers that hold nothing any more.
func (s *peers) prune() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p, st := range s.known {
		s.pruneLocked(p, st)
	}
}

// reading counts a stream whose first frame is not read yet; done must be called
// once if ok.
func (s *peers) reading(p peer.ID) (done func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.getLocked(p)
	if st.unread >= maxUnread {
		return nil, false
	}
	st.unread++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		st.unread--
	}, true
}

// slot counts a start and a running operation against the limits. The error is
// a *protocol.Refusal; release must be called once otherwise.
func (s *peers) slot(p peer.ID) (release func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st, limits := s.getLocked(p), limitsOf(s.policy)
	switch {
	case st.running >= limits.OperationsPerPeer, s.running >= limits.Operations:
		return nil, &protocol.Refusal{Code: protocol.CodeBusy, RetryAfter: retryBusy}
	case !st.starts.Allow():
		wait := time.Minute / time.Duration(max(1, limits.StartsPerMinute))
		return nil, &protocol.Refusal{Code: protocol.CodeRateLimited, RetryAfter: wait}
	}
	st.running++
	s.running++
	var once sync.Once
	return func() {
		once.Do(func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			st.running--
			s.running--
			s.pruneLocked(p, st)
		})
	}, nil
}

// swap makes p the policy.
func (s *peers) swap(p *policy.Policy) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.policy = p
	perMinute := max(1, limitsOf(p).StartsPerMinute)
	for _, st := range s.known {
		st.starts.SetLimit(rate.Limit(float64(perMinute) / 60))
		st.starts.SetBurst(perMinute)
	}
}

// unwelcome returns the connected peers that the policy does not admit.
func (s *peers) unwelcome() (out []peer.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, st := range s.known {
		n, ok := peerName(id)
		a := s.policy.Admission(n)
		if st.conns > 0 && (!ok || a == policy.AdmitNone || a == policy.AdmitStranger && !st.proved && st.expires == nil) {
			out = append(out, id)
		}
	}
	return out
}

func (s *peers) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, st := range s.known {
		st.stopTimer()
	}
}

// Connected and Disconnected are told by the host.
func (s *peers) notifiee() network.Notifiee {
	return &network.NotifyBundle{
		ConnectedF:    func(_ network.Network, c network.Conn) { s.connected(c.RemotePeer()) },
		DisconnectedF: func(_ network.Network, c network.Conn) { s.disconnected(c.RemotePeer()) },
	}
}
