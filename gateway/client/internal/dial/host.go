package dial

import (
	"fmt"
	"io"
	"math"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/connmgr"
	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	rcmgr "github.com/libp2p/go-libp2p/p2p/host/resource-manager"
	"github.com/libp2p/go-libp2p/p2p/muxer/yamux"
	"github.com/libp2p/go-libp2p/p2p/security/noise"
	libp2ptls "github.com/libp2p/go-libp2p/p2p/security/tls"
	libp2pquic "github.com/libp2p/go-libp2p/p2p/transport/quic"
	"github.com/libp2p/go-libp2p/p2p/transport/tcp"

	"github.com/lendcli/lend/protocol"
)

// keepAlive is how long a TCP link may be silent before it is asked whether it is
// alive. One that does not answer, as after a change of this machine's address, is
// replaced 10 s later: within the least of the usual graces, and about as soon as on
// QUIC. A slow link is not silent for so long, even with windows in flight.
const keepAlive = 15 * time.Second

// initialWindow of a stream on TCP takes what a gateway sends of both outputs before it
// waits for an acknowledgement, with the frames around it. It costs nothing until it
// comes, and the client reads ahead anyway. maxWindow is that doubled a few times, no
// less, as at the gateway (ADR 155).
const (
	initialWindow = 2 * (protocol.MinWindow + protocol.MinWindow/16)
	maxWindow     = initialWindow << 3
)

// NewHost builds a host that dials and never listens: QUIC and TCP, no relay, no
// discovery. The caller must Close it.
func NewHost(key crypto.PrivKey) (host.Host, error) {
	muxer := *yamux.DefaultTransport
	muxer.InitialStreamWindowSize = initialWindow // the reader's value counts
	muxer.MaxStreamWindowSize = maxWindow
	muxer.KeepAliveInterval = keepAlive
	muxer.LogOutput = io.Discard
	resources, err := newResources()
	if err != nil {
		return nil, fmt.Errorf("set resource limits: %w", err)
	}
	h, err := libp2p.New(
		libp2p.Identity(key),
		libp2p.NoListenAddrs,
		libp2p.Transport(tcp.NewTCPTransport),
		libp2p.Transport(libp2pquic.NewTransport),
		libp2p.Security(libp2ptls.ID, libp2ptls.New),
		libp2p.Security(noise.ID, noise.New),
		libp2p.Muxer(yamux.ID, &muxer),
		libp2p.ResourceManager(resources),
		libp2p.ConnectionManager(connmgr.NullConnMgr{}),
		libp2p.UserAgent("lend"),
		libp2p.DisableRelay(),
		libp2p.DisableIdentifyAddressDiscovery(),
		libp2p.Ping(false),
		libp2p.DisableMetrics(),
	)
	if err != nil {
		return nil, fmt.Errorf("build host: %w", err)
	}
	return h, nil
}

// newResources bounds what gateways may open; what the client opens is its own
// affair.
func newResources() (network.ResourceManager, error) {
	open := rcmgr.ResourceLimits{
		Streams: rcmgr.Unlimited, StreamsInbound: 64, StreamsOutbound: rcmgr.Unlimited,
		Conns: rcmgr.Unlimited, ConnsInbound: 1, ConnsOutbound: rcmgr.Unlimited,
		FD: rcmgr.Unlimited, Memory: rcmgr.Unlimited64,
	}
	partial := rcmgr.PartialLimitConfig{
		System: open, Transient: open, PeerDefault: open, ProtocolDefault: open, ProtocolPeerDefault: open,
		ServiceDefault: open, ServicePeerDefault: open, Conn: open, Stream: open,
	}
	limits := partial.Build(rcmgr.DefaultLimits.Scale(1<<30, math.MaxInt16))
	return rcmgr.NewResourceManager(rcmgr.NewFixedLimiter(limits), rcmgr.WithMetricsDisabled())
}
