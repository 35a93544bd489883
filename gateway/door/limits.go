package door

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	rcmgr "github.com/libp2p/go-libp2p/p2p/host/resource-manager"

	"github.com/lendcli/lend/policy"
)

// Everything that bounds a peer at the door is here: numbers of our own, and those
// that Transport derives from the policy's.

// Bounds of what a peer may hold without having shown a lease.
const (
	MaxStrangers  = 16
	StrangerGrace = 5 * time.Second
	MaxUnread     = 16 // streams without a complete first frame, a peer

	// RetryBusy is the hint that goes with BUSY.
	RetryBusy = 500 * time.Millisecond

	// penitents are how many strangers may be here while all pay for what some did, and
	// trickleEvery is how often one is let in then.
	penitents    = 4
	trickleEvery = time.Second

	// reservedShare of all operations is left for peers that have none: one in so many.
	reservedShare = 8

	// maxRemembered bounds the peers that are remembered while they hold nothing.
	maxRemembered = 4096
)

// Bounds of connections. The resource manager's own defaults are for public
// networks: they would reset a busy peer's streams before admission could answer,
// and count agents behind one address as one.
const (
	connsPerPeer    = 16
	connsPerAddress = 64
	connsInAll      = 1024
	connsPerSecond  = 5         // new ones from one address, sustained
	streamMemory    = 256 << 10 // what the muxer takes for a stream before it has read anything
	peerMemory      = 64 << 20  // for windows that grow, and for streams that wait to be counted

	streamsPerPeer     = 256
	streamsPerStranger = 64
)

// Transport are the bounds of the libp2p host: above what the policy's limits let
// through, so that admission answers first, with a code, and below what would hurt.
// Streams and memory are bounded for each peer, and for a stranger lower; there is
// no bound in all that some peers could use up, since a muxer that gets no memory
// for a stream ends the whole connection: how many peers there are is the policy's
// word.
type Transport struct {
	StreamsPerPeer, StreamsPerStranger int
	// MemoryPerPeer and MemoryPerStranger are bytes of the muxers.
	MemoryPerPeer, MemoryPerStranger int64
	Conns, ConnsPerPeer              int
	ConnsPerAddress                  int
	ConnsPerSecond                   int // new ones from one address, after a burst of ConnsPerAddress
}

// TransportOf derives the bounds. An operation has one stream; cancels, questions
// and what is refused have one for a moment.
func TransportOf(l policy.Limits) Transport {
	t := Transport{
		StreamsPerPeer:     max(streamsPerPeer, 4*l.OperationsPerPeer),
		StreamsPerStranger: max(streamsPerStranger, 2*l.OperationsPerPeer),
		Conns:              connsInAll, ConnsPerPeer: connsPerPeer, ConnsPerAddress: connsPerAddress, ConnsPerSecond: connsPerSecond,
	}
	t.MemoryPerPeer = int64(t.StreamsPerPeer)*streamMemory + peerMemory
	t.MemoryPerStranger = int64(t.StreamsPerStranger)*streamMemory + peerMemory
	return t
}

// bound is the limit of one scope, read anew at each use: a reload of the policy
// holds for scopes that are there already.
type bound func() (streams, conns int, memory int64)

var _ rcmgr.Limit = bound(nil)

func (b bound) GetMemoryLimit() int64 { _, _, memory := b(); return memory }

func (b bound) GetStreamLimit(network.Direction) int { streams, _, _ := b(); return streams }
func (b bound) GetStreamTotalLimit() int             { return twice(b.GetStreamLimit(network.DirInbound)) }
func (b bound) GetConnLimit(network.Direction) int   { _, conns, _ := b(); return conns }
func (b bound) GetConnTotalLimit() int               { return twice(b.GetConnLimit(network.DirInbound)) }
func (b bound) GetFDLimit() int                      { return b.GetConnTotalLimit() }

// twice is for both directions; unbound stays so.
func twice(n int) int {
	if n == math.MaxInt {
		return n
	}
	return 2 * n
}

// limiter has the scopes that are bound; what it embeds leaves the others open.
type limiter struct {
	rcmgr.Limiter
	of              *atomic.Pointer[Transport]
	stranger, guest func(peer.ID) bool
}

// GetSystemLimits bounds connections in all.
func (l *limiter) GetSystemLimits() rcmgr.Limit {
	return bound(func() (int, int, int64) { return math.MaxInt, l.of.Load().Conns, math.MaxInt64 })
}

// GetTransientLimits bounds connections that are not a peer's yet.
func (l *limiter) GetTransientLimits() rcmgr.Limit {
	return bound(func() (int, int, int64) { return math.MaxInt, l.of.Load().Conns / 4, math.MaxInt64 })
}

// GetPeerLimits is asked when a peer connects. A guest may have become a named peer since.
func (l *limiter) GetPeerLimits(p peer.ID) rcmgr.Limit {
	if l.guest(p) {
		return bound(func() (int, int, int64) {
			if l.guest(p) {
				return streamsPerGuest, connsPerGuest, guestMemory
			}
			t := l.of.Load()
			return t.StreamsPerPeer, t.ConnsPerPeer, t.MemoryPerPeer
		})
	}
	if l.stranger(p) {
		return bound(func() (int, int, int64) {
			t := l.of.Load()
			return t.StreamsPerStranger, t.ConnsPerPeer, t.MemoryPerStranger
		})
	}
	return bound(func() (int, int, int64) {
		t := l.of.Load()
		return t.StreamsPerPeer, t.ConnsPerPeer, t.MemoryPerPeer
	})
}
