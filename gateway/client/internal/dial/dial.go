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

	"github.com/lendcli/lend/protocol"
)

// Errors of Open and Confirmed. With each of them nothing of the caller's was read by
// the gateway.
var (
	// ErrNotGateway: the peer that answered does not speak the protocol.
	ErrNotGateway = errors.New("the peer is not a lend gateway of this version")
	// ErrLost: there was a link, and it was lost, or silent, before the gateway's
	// first word, and before anything was sent. Another may do better.
	ErrLost = errors.New("the link was lost before the gateway's first word")
	// ErrHungUp: likewise, by the other end. It is an ErrLost too.
	ErrHungUp = fmt.Errorf("the gateway hung up: %w", ErrLost)
	// ErrNotAdmitted: the gateway said that it does not admit this peer. It has read
	// no stream of the connection.
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

// because is an error that says all that its cause does, in words.
type because struct {
	error

	cause error
}

func (b because) Unwrap() []error { return []error{b.error, b.cause} }

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
	_, err := d.connect(ctx, to)
	return err
}

// connect returns the connection that it made, nil if there was one.
func (d *Dialer) connect(ctx context.Context, to peer.AddrInfo) (network.Conn, error) {
	if len(d.Host.Network().ConnsToPeer(to.ID)) > 0 {
		return nil, nil
	}
	if len(to.Addrs) == 0 {
		return nil, ErrNoAddress
	}
	ctx, cancel := d.bounded(ctx)
	defer cancel()
	d.Host.Peerstore().AddAddrs(to.ID, to.Addrs, peerstore.TempAddrTTL)
	if s, ok := d.Host.Network().(*swarm.Swarm); ok {
		s.Backoff().Clear(to.ID) // waiting is decided here
	}
	c, err := d.Host.Network().DialPeer(ctx, to.ID)
	if err != nil {
		return nil, unreachable{fmt.Errorf("connect to gateway: %w", oneLine(err))}
	}
	return c, nil
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

// Open returns a stream for one protocol. What is proposed travels with the first
// frame, on a new connection too. Until the gateway's first word nobody knows whether
// that frame was read, unless Write or Read says ErrUnreachable or ErrNotGateway: then
// it was not. A new connection that is lost or silent before that word is closed, so
// that the next Open makes another. spec: ID-1
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
	if !d.answered(to.ID, raw.Conn().ID()) {
		s.newFor = d
		s.patience = time.AfterFunc(wordTimeout, s.giveUp)
	}
	return s, nil
}

// Confirmed is Open that awaits the gateway's word on a new connection: for what
// cannot be repeated without harm, or is asked seldom. With an error nothing was sent
// but the name of the protocol. It is a *protocol.Refusal if the gateway said so.
func (d *Dialer) Confirmed(ctx context.Context, to peer.AddrInfo, id core.ID) (*Stream, error) {
	s, err := d.Open(ctx, to, id)
	if err != nil || s.newFor == nil {
		return s, err
	}
	stop := context.AfterFunc(ctx, func() { _ = s.Reset() })
	defer stop()
	if err = s.confirm(); err == nil {
		return s, nil
	}
	_ = s.Reset()
	var reset *network.StreamError
	var refused *protocol.Refusal
	switch {
	case errors.As(Refused(err), &refused):
		return nil, refused
	case ctx.Err() != nil:
		return nil, fmt.Errorf("open stream: %w", context.Cause(ctx))
	case errors.Is(err, ErrNotGateway), errors.Is(err, ErrUnreachable):
		return nil, err
	case errors.As(err, &reset):
		return nil, unreachable{fmt.Errorf("%w: %w", ErrLost, err)}
	}
	return nil, unreachable{fmt.Errorf("%w: %w", ErrHungUp, err)}
}

// untaken is an error that says that the other end closed the connection in place of
// taking it: it does so before it reads any stream, and never after. Other errors come
// back as they are.
func untaken(err error) error {
	var gone *network.ConnError
	if errors.As(err, &gone) && gone.Remote {
		if gone.ErrorCode == network.ConnGated {
			return unreachable{because{ErrNotAdmitted, err}}
		}
		if gone.ErrorCode == network.ConnResourceLimitExceeded {
			return unreachable{because{ErrHungUp, err}}
		}
	}
	return err
}

// raw opens a stream, twice if need be: the connection may just have gone.
func (d *Dialer) raw(ctx context.Context, to peer.AddrInfo) (network.Stream, error) {
	within, cancel := d.bounded(ctx)
	defer cancel()
	s, err := d.once(within, to)
	if err != nil && within.Err() == nil && !errors.Is(err, ErrNotAdmitted) {
		s, err = d.once(within, to)
	}
	if err != nil && ctx.Err() != nil {
		return nil, fmt.Errorf("connect to gateway: %w", context.Cause(ctx))
	}
	return s, err
}

func (d *Dialer) once(ctx context.Context, to peer.AddrInfo) (s network.Stream, err error) {
	c, err := d.connect(ctx, to)
	switch {
	case err != nil:
		return nil, err
	case c != nil: // if it is closed already, it still says why
		s, err = c.NewStream(ctx)
	default:
		s, err = d.Host.Network().NewStream(network.WithNoDial(ctx, "lend connects itself"), to.ID)
	}
	if err == nil {
		return s, nil
	}
	if why := untaken(err); errors.Is(why, ErrUnreachable) {
		return nil, why
	}
	return nil, unreachable{fmt.Errorf("%w: open stream: %w", ErrHungUp, err)}
}

func (d *Dialer) answered(p peer.ID, conn string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.confirmed[p] == conn
}

// heard notes that a gateway answers on a connection.
func (d *Dialer) heard(p peer.ID, conn string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.confirmed == nil {
		d.confirmed = map[peer.ID]string{}
	}
	d.confirmed[p] = conn
}
