package door

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"math"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/connmgr"
	"github.com/libp2p/go-libp2p/core/control"
	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	rcmgr "github.com/libp2p/go-libp2p/p2p/host/resource-manager"
	"github.com/libp2p/go-libp2p/p2p/muxer/yamux"
	"github.com/libp2p/go-libp2p/p2p/security/noise"
	libp2ptls "github.com/libp2p/go-libp2p/p2p/security/tls"
	libp2pquic "github.com/libp2p/go-libp2p/p2p/transport/quic"
	"github.com/libp2p/go-libp2p/p2p/transport/quicreuse"
	"github.com/libp2p/go-libp2p/p2p/transport/tcp"
	"github.com/libp2p/go-libp2p/x/rate"
	"github.com/multiformats/go-multiaddr"

	"github.com/lendcli/lend/protocol"
)

// Windows of the muxer on TCP. The greatest rate of one stream is the window
// divided by the round trip; it starts large, since most outputs are short: what the
// protocol lets through at first fits, with its frames, and does not wait for an update.
//
// A window doubles, and go-yamux then announces the new half but not the bytes that were
// read since the last update. The greatest window is the first one doubled a few times,
// no less: only so do the bytes that are lost stay below half of it, which a sender
// must have left for the next update to come at all. See ADR 155.
const (
	muxerInitialWindow = protocol.MinWindow + protocol.MinWindow/16
	muxerMaxWindow     = muxerInitialWindow << 4
)

// HostConfig says what Host builds.
type HostConfig struct {
	// Key is the identity, 64 bytes.
	Key ed25519.PrivateKey
	// Announce replaces what peers are told; none means what is listened on.
	Announce []multiaddr.Multiaddr
	// QUIC are options of the UDP sockets; none means the machine's.
	QUIC []quicreuse.Option
}

// Host builds the libp2p host: TCP with TLS or Noise, and QUIC; no relay, no NAT
// probing, no ping, no discovery. d decides who may connect. The host does not
// listen yet; the caller must Close it.
func (d *Door) Host(c HostConfig) (host.Host, error) {
	id, err := crypto.UnmarshalEd25519PrivateKey(c.Key)
	if err != nil {
		return nil, fmt.Errorf("read identity: %w", err)
	}
	resources, err := newResources(&d.transport, d.stranger, d.guest)
	if err != nil {
		return nil, fmt.Errorf("set resource limits: %w", err)
	}
	options := []libp2p.Option{
		libp2p.Identity(id),
		libp2p.NoListenAddrs,
		libp2p.Transport(tcp.NewTCPTransport),
		libp2p.Transport(libp2pquic.NewTransport),
		libp2p.Security(libp2ptls.ID, libp2ptls.New),
		libp2p.Security(noise.ID, noise.New),
		libp2p.Muxer(yamux.ID, Muxer()),
		libp2p.ConnectionGater(gater{d.enter}),
		libp2p.ResourceManager(resources),
		libp2p.ConnectionManager(connmgr.NullConnMgr{}),
		libp2p.UserAgent("lend"),
		libp2p.DisableRelay(),
		libp2p.ForceReachabilityPrivate(), // no probing
		libp2p.DisableIdentifyAddressDiscovery(),
		libp2p.Ping(false),
		libp2p.DisableMetrics(),
	}
	if len(c.QUIC) > 0 {
		options = append(options, libp2p.QUICReuse(quicreuse.NewConnManager, c.QUIC...))
	}
	if len(c.Announce) > 0 {
		options = append(options, libp2p.AddrsFactory(func([]multiaddr.Multiaddr) []multiaddr.Multiaddr { return c.Announce }))
	}
	h, err := libp2p.New(options...)
	if err != nil {
		return nil, fmt.Errorf("build host: %w", err)
	}
	h.Network().Notify(&network.NotifyBundle{
		ConnectedF:    func(_ network.Network, c network.Conn) { d.connected(c.RemotePeer()) },
		DisconnectedF: func(_ network.Network, c network.Conn) { d.disconnected(c.RemotePeer()) },
	})
	return h, nil
}

// Listen makes h listen on all of the addresses, or fails.
func Listen(h host.Host, addrs []multiaddr.Multiaddr) error {
	for _, a := range addrs {
		if err := h.Network().Listen(a); err != nil {
			return fmt.Errorf("listen on %s: %w", a, err)
		}
	}
	return nil
}

// Relisten listens again on those of the addresses, which h listened on, where no
// listener is left: one that could not accept for want of memory, say, has given up
// for good. It returns those that it listens on again; the error is about the rest.
func Relisten(h host.Host, addrs []multiaddr.Multiaddr) (again []multiaddr.Multiaddr, err error) {
	have := h.Network().ListenAddresses()
	for _, a := range addrs {
		if slices.ContainsFunc(have, a.Equal) {
			continue
		}
		if failed := Listen(h, []multiaddr.Multiaddr{a}); failed != nil {
			err = errors.Join(err, failed)
			continue
		}
		again = append(again, a)
	}
	return again, err
}

// Muxer is the stream muxer of TCP with the windows that both ends should have.
func Muxer() network.Multiplexer {
	m := *yamux.DefaultTransport
	m.InitialStreamWindowSize = muxerInitialWindow
	m.MaxStreamWindowSize = muxerMaxWindow
	m.LogOutput = io.Discard
	return polite{&m}
}

// newResources keeps the transport within the bounds that t points to.
func newResources(t *atomic.Pointer[Transport], stranger, guest func(peer.ID) bool) (network.ResourceManager, error) {
	open := rcmgr.ResourceLimits{
		Streams: rcmgr.Unlimited, StreamsInbound: rcmgr.Unlimited, StreamsOutbound: rcmgr.Unlimited,
		Conns: rcmgr.Unlimited, ConnsInbound: rcmgr.Unlimited, ConnsOutbound: rcmgr.Unlimited,
		FD: rcmgr.Unlimited, Memory: rcmgr.Unlimited64,
	}
	others := rcmgr.PartialLimitConfig{
		ProtocolDefault: open, ProtocolPeerDefault: open, ServiceDefault: open, ServicePeerDefault: open,
	}
	address := func(bits, n int) rcmgr.ConnLimitPerSubnet {
		return rcmgr.ConnLimitPerSubnet{PrefixLength: bits, ConnCount: n}
	}
	pace := func(bits, n int) rate.SubnetLimit {
		return rate.SubnetLimit{PrefixLength: bits, Limit: rate.Limit{RPS: float64(n) * connsPerSecond, Burst: n * connsPerAddress}}
	}
	return rcmgr.NewResourceManager(
		&limiter{
			Limiter: rcmgr.NewFixedLimiter(others.Build(rcmgr.DefaultLimits.Scale(1<<30, math.MaxInt16))),
			of:      t, stranger: stranger, guest: guest,
		},
		rcmgr.WithMetricsDisabled(),
		rcmgr.WithLimitPerSubnet(
			[]rcmgr.ConnLimitPerSubnet{address(32, connsPerAddress)},
			[]rcmgr.ConnLimitPerSubnet{address(56, connsPerAddress), address(48, 4*connsPerAddress)}),
		rcmgr.WithConnRateLimiters(&rate.Limiter{
			NetworkPrefixLimits: []rate.PrefixLimit{
				{Prefix: netip.MustParsePrefix("127.0.0.0/8")}, // no limit
				{Prefix: netip.MustParsePrefix("::1/128")},
			},
			SubnetRateLimiter: rate.SubnetLimiter{
				IPv4SubnetLimits: []rate.SubnetLimit{pace(32, 1)},
				IPv6SubnetLimits: []rate.SubnetLimit{pace(56, 1), pace(48, 4)},
				GracePeriod:      time.Minute,
			},
		}),
	)
}

// gater admits connections by the policy's word about the peer, before any frame.
// Who is turned away is told so, by a code for the whole connection that nothing else
// uses: a caller who sent a request at once knows by it that nobody read it. On TCP
// only a muxer can carry the code.
type gater struct{ admit func(peer.ID) bool }

var _ connmgr.ConnectionGater = gater{}

// InterceptPeerDial refuses: a gateway dials nobody.
func (g gater) InterceptPeerDial(peer.ID) bool { return false }

// InterceptAddrDial refuses likewise.
func (g gater) InterceptAddrDial(peer.ID, multiaddr.Multiaddr) bool { return false }

// InterceptAccept leaves it to the resource manager, which counts addresses.
func (g gater) InterceptAccept(network.ConnMultiaddrs) bool { return true }

// InterceptSecured asks the policy where there is no other muxer than the transport.
func (g gater) InterceptSecured(_ network.Direction, p peer.ID, c network.ConnMultiaddrs) bool {
	return kind(c.RemoteMultiaddr()) == multiaddr.P_TCP || g.admit(p)
}

// InterceptUpgraded asks the policy on TCP. No stream is read before it answers.
func (g gater) InterceptUpgraded(c network.Conn) (bool, control.DisconnectReason) {
	return kind(c.RemoteMultiaddr()) != multiaddr.P_TCP || g.admit(c.RemotePeer()), 0
}
