package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/connmgr"
	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/peerstore"
	core "github.com/libp2p/go-libp2p/core/protocol"
	rcmgr "github.com/libp2p/go-libp2p/p2p/host/resource-manager"
	"github.com/libp2p/go-libp2p/p2p/muxer/yamux"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"
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

// newHost builds a host that dials and never listens: QUIC and TCP, no relay, no
// discovery.
func newHost(key crypto.PrivKey) (host.Host, error) {
	muxer := *yamux.DefaultTransport
	muxer.InitialStreamWindowSize = protocol.MinWindow // the reader's value counts
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

// links opens streams to gateways and remembers which connections have shown
// that a gateway answers on them.
type links struct {
	host host.Host

	mu        sync.Mutex         // guards confirmed
	confirmed map[peer.ID]string // the connection that has answered
}

// connect dials if there is no connection. QUIC goes first: libp2p gives it a
// head start over TCP.
func (k *links) connect(ctx context.Context, to peer.AddrInfo) error {
	if len(k.host.Network().ConnsToPeer(to.ID)) > 0 {
		return nil
	}
	if len(to.Addrs) == 0 {
		return errors.New("connect to gateway: no address is known")
	}
	k.host.Peerstore().AddAddrs(to.ID, to.Addrs, peerstore.TempAddrTTL)
	if s, ok := k.host.Network().(*swarm.Swarm); ok {
		s.Backoff().Clear(to.ID) // waiting is decided here
	}
	if _, err := k.host.Network().DialPeer(ctx, to.ID); err != nil {
		return fmt.Errorf("connect to gateway: %w", oneLine(err))
	}
	return nil
}

// oneLine makes the table of a failed dial one line.
func oneLine(err error) error {
	var dial *swarm.DialError
	if !errors.As(err, &dial) || len(dial.DialErrors) == 0 {
		return err
	}
	var all error
	for _, e := range dial.DialErrors {
		one := fmt.Errorf("%s: %w", e.Address, e.Cause)
		if all == nil {
			all = one
		} else {
			all = fmt.Errorf("%w; %w", all, one)
		}
	}
	return all
}

// open returns a stream for one protocol. On a connection that has answered
// before, the proposal of the protocol travels with the first frame. On a new one
// the answer is awaited first: a gateway that does not admit this peer hangs up,
// and so it is known that nothing was sent. spec: ID-1
func (k *links) open(ctx context.Context, to peer.AddrInfo, id core.ID) (*stream, error) {
	raw, err := k.raw(ctx, to)
	if err != nil {
		if raw, err = k.raw(ctx, to); err != nil { // the connection may just have gone
			return nil, err
		}
	}
	if err := raw.SetProtocol(id); err != nil {
		_ = raw.Reset()
		return nil, fmt.Errorf("open stream: %w", err)
	}
	s := &stream{Stream: raw, hello: hello(id)}
	if k.answered(to.ID, raw.Conn().ID()) {
		return s, nil
	}
	stop := context.AfterFunc(ctx, func() { _ = raw.Reset() })
	defer stop()
	if err := s.confirm(); err != nil {
		_ = raw.Reset()
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, fmt.Errorf("the gateway did not admit this peer: %w", err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.confirmed[to.ID] = raw.Conn().ID()
	return s, nil
}

func (k *links) raw(ctx context.Context, to peer.AddrInfo) (network.Stream, error) {
	if err := k.connect(ctx, to); err != nil {
		return nil, err
	}
	s, err := k.host.Network().NewStream(network.WithNoDial(ctx, "lend connects itself"), to.ID)
	if err != nil {
		return nil, fmt.Errorf("open stream: %w", err)
	}
	return s, nil
}

func (k *links) answered(p peer.ID, conn string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.confirmed[p] == conn
}

// stream is a libp2p stream that negotiates its protocol by itself: what is
// proposed goes out with the first Write, and what comes back is checked by the
// first Read. One goroutine reads; writers take turns.
type stream struct {
	network.Stream
	hello []byte
	said  bool  // hello was written
	heard bool  // the answer was read
	bad   error // it was wrong
}

const multistream = "/multistream/1.0.0"

func hello(id core.ID) []byte {
	b := append([]byte{byte(len(multistream) + 1)}, multistream+"\n"...)
	return append(append(b, byte(len(id)+1)), string(id)+"\n"...)
}

func (s *stream) Write(b []byte) (int, error) {
	if s.said {
		return s.Stream.Write(b)
	}
	s.said = true
	n, err := s.Stream.Write(append(s.hello[:len(s.hello):len(s.hello)], b...))
	return max(0, n-len(s.hello)), err
}

func (s *stream) Read(b []byte) (int, error) {
	if err := s.hear(); err != nil {
		return 0, err
	}
	return s.Stream.Read(b)
}

// hear reads the answer: the same bytes, if the peer speaks the protocol.
func (s *stream) hear() error {
	if s.heard {
		return s.bad
	}
	got := make([]byte, len(s.hello))
	first := int(s.hello[0]) + 2 // one length more, which says what is to come
	if _, err := io.ReadFull(s.Stream, got[:first]); err != nil {
		var reset *network.StreamError
		if errors.As(err, &reset) && reset.Remote && reset.ErrorCode == network.StreamProtocolNegotiationFailed {
			return ErrNotGateway
		}
		return err
	}
	s.heard = true
	if string(got[:first]) != string(s.hello[:first]) {
		s.bad = ErrNotGateway
		return s.bad
	}
	if _, err := io.ReadFull(s.Stream, got[first:]); err != nil {
		s.bad = err
	} else if string(got) != string(s.hello) {
		s.bad = ErrNotGateway
	}
	return s.bad
}

// confirm negotiates at once.
func (s *stream) confirm() error {
	if _, err := s.Write(nil); err != nil {
		return err
	}
	return s.hear()
}
