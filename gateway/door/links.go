package door

import (
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/multiformats/go-multiaddr"
)

// Links counts what peers hold at the transport.
type Links struct {
	TCP, QUIC, Other int // connections
	Streams          int
	// TurnedAway counts the connections that were not let in, ever.
	TurnedAway uint64
}

// Links counts what peers hold at h, which Host made.
func (d *Door) Links(h host.Host) Links {
	l := Links{TurnedAway: d.turned.Load()}
	for _, c := range h.Network().Conns() {
		l.Streams += c.Stat().NumStreams
		switch kind(c.RemoteMultiaddr()) {
		case multiaddr.P_TCP:
			l.TCP++
		case multiaddr.P_QUIC_V1:
			l.QUIC++
		default:
			l.Other++
		}
	}
	return l
}

// kind is the code of the transport that an address names last.
func kind(a multiaddr.Multiaddr) (code int) {
	multiaddr.ForEach(a, func(c multiaddr.Component) bool {
		if p := c.Protocol().Code; p == multiaddr.P_TCP || p == multiaddr.P_QUIC_V1 || p == multiaddr.P_CIRCUIT {
			code = p
		}
		return true
	})
	return code
}

// enter is admit, and counts who is not let in.
func (d *Door) enter(p peer.ID) bool {
	in := d.admit(p)
	if !in {
		d.turned.Add(1)
	}
	return in
}
