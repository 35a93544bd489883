package dial

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/peerstore"
	core "github.com/libp2p/go-libp2p/core/protocol"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"
)

// Errors of Open. With each of them nothing was sent but the name of the protocol.
var (
	// ErrNotGateway: the peer that answered does not speak the protocol.
	ErrNotGateway = errors.New("the peer is not a lend gateway of this version")
	// ErrLost: there was a link, and it was lost, or silent, before the gateway's
	// first word. Another may do better.
	ErrLost = errors.New("the link was lost before the gateway's first word")
	// ErrHungUp: likewise, by the other end, which is also how a gateway turns away
	// whom it does not admit, over TCP. It is an ErrLost too.
	ErrHungUp = fmt.Errorf("the gateway did not admit this peer, or %w", ErrLost)
	// ErrNotAdmitted: the gateway said that it does not admit this peer.
	ErrNotAdmitted = errors.New("the gateway did not admit this peer")
	// ErrNoAddress: nobody said where the gateway is.
	ErrNoAddress = errors.New("connect to gateway: no address is known")
	// ErrUnreachable is any of these but ErrNotGateway, and that no connection could be
	// made: later it may be otherwise.
	ErrUnreachable = errors.New("the gateway cannot be reached")
)

// unreachable makes an error an ErrUnreachable too.
type unreachable struct{ error }

func (u unreachable) Is(target error) bool { return target == ErrUnreachable }
func (u unreachable) Unwrap() error        { return u.error }

// wordTimeout is how long a new link may be silent before another is tried.
const wordTimeout = 3 * time.Second

// Dialer opens streams to gateways and remembers which connections have shown that
// a gateway answers on them. It is safe for concurrent use.
type Dialer struct {
	// Host dials. It is the caller's.
	Host host.Host
	// Timeout bounds the making of one connection; 0 leaves it to libp2p.
	Timeout time.Duration

	mu        sync.Mutex         // guards confirmed
	confirmed map[peer.ID]string // the connection that has answered
}

// Connect dials if there is no connection. QUIC goes first: libp2p gives it a
// head start over TCP.
func (d *Dialer) Connect(ctx context.Context, to peer.AddrInfo) error {
	if len(d.Host.Network().ConnsToPeer(to.ID)) > 0 {
		return nil
	}
	if len(to.Addrs) == 0 {
		return ErrNoAddress
	}
	ctx, cancel := d.bounded(ctx)
	defer cancel()
	d.Host.Peerstore().AddAddrs(to.ID, to.Addrs, peerstore.TempAddrTTL)
	if s, ok := d.Host.Network().(*swarm.Swarm); ok {
		s.Backoff().Clear(to.ID) // waiting is decided here
	}
	if _, err := d.Host.Network().DialPeer(ctx, to.ID); err != nil {
		return unreachable{fmt.Errorf("connect to gateway: %w", oneLine(err))}
	}
	return nil
}

func (d *Dialer) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if d.Timeout <= 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, d.Timeout)
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

// Open returns a stream for one protocol. On a connection that has answered
// before, the proposal of the protocol travels with the first frame. On a new one
// the answer is awaited first: a gateway that does not admit this peer hangs up,
// and so it is known that nothing was sent. A connection that is lost or silent then
// is closed, so that the next Open makes another. spec: ID-1
func (d *Dialer) Open(ctx context.Context, to peer.AddrInfo, id core.ID) (*Stream, error) {
	raw, err := d.raw(ctx, to)
	if err != nil {
		return nil, err
	}
	if err := raw.SetProtocol(id); err != nil {
		_ = raw.Reset()
		return nil, fmt.Errorf("open stream: %w", err)
	}
	s := &Stream{Stream: raw, hello: hello(id)}
	if d.answered(to.ID, raw.Conn().ID()) {
		return s, nil
	}
	if err := d.confirm(ctx, s); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.confirmed == nil {
		d.confirmed = map[peer.ID]string{}
	}
	d.confirmed[to.ID] = raw.Conn().ID()
	return s, nil
}

// confirm waits for the gateway's word on a new connection.
func (d *Dialer) confirm(ctx context.Context, s *Stream) error {
	word, cancel := context.WithTimeout(ctx, wordTimeout)
	defer cancel()
	stop := context.AfterFunc(word, func() { _ = s.Reset() })
	defer stop()
	err := s.confirm()
	if err == nil {
		return nil
	}
	_ = s.Reset()
	if ctx.Err() != nil {
		return fmt.Errorf("open stream: %w", context.Cause(ctx))
	}
	lost := ErrLost
	var reset *network.StreamError
	var gone *network.ConnError
	switch {
	case errors.Is(err, ErrNotGateway):
		return err
	case word.Err() != nil:
	case errors.As(err, &gone) && gone.Remote && gone.ErrorCode == network.ConnGated:
		lost = ErrNotAdmitted
	case errors.As(err, &gone), !errors.As(err, &reset):
		lost = ErrHungUp
	default: // the stream alone: the connection may be well
		return unreachable{fmt.Errorf("%w: %w", lost, err)}
	}
	_ = s.Conn().Close() // half dead at best
	return unreachable{fmt.Errorf("%w: %w", lost, err)}
}

// raw opens a stream, twice if need be: the connection may just have gone.
func (d *Dialer) raw(ctx context.Context, to peer.AddrInfo) (network.Stream, error) {
	within, cancel := d.bounded(ctx)
	defer cancel()
	s, err := d.once(within, to)
	if err != nil && within.Err() == nil {
		s, err = d.once(within, to)
	}
	if err != nil && ctx.Err() != nil {
		return nil, fmt.Errorf("connect to gateway: %w", context.Cause(ctx))
	}
	return s, err
}

func (d *Dialer) once(ctx context.Context, to peer.AddrInfo) (network.Stream, error) {
	if err := d.Connect(ctx, to); err != nil {
		return nil, err
	}
	s, err := d.Host.Network().NewStream(network.WithNoDial(ctx, "lend connects itself"), to.ID)
	if err != nil {
		return nil, unreachable{fmt.Errorf("%w: open stream: %w", ErrHungUp, err)}
	}
	return s, nil
}

func (d *Dialer) answered(p peer.ID, conn string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.confirmed[p] == conn
}
