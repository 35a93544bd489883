package client

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/peer"
	core "github.com/libp2p/go-libp2p/core/protocol"
	"github.com/multiformats/go-multiaddr"
	"github.com/rs/zerolog"

	"github.com/lendcli/lend/gateway/client/internal/dial"
	"github.com/lendcli/lend/protocol"
	"github.com/lendcli/lend/protocol/name"
)

// Config is what New needs. It must not be changed after New.
type Config struct {
	// Key is the holder's identity: an Ed25519 private key of 64 bytes. It is not
	// used if Host is set.
	Key ed25519.PrivateKey
	// Host is a libp2p host of the embedding product with an Ed25519 identity; the
	// Client does not close it. nil: the Client makes one that only dials.
	Host host.Host
	// Leases gives the lease for each operation. Needed.
	Leases LeaseSource
	// Addresses are tried beside those of the lease file.
	Addresses []multiaddr.Multiaddr
	// Wait is how long a refusal that says "not now" is waited for, a lost link
	// before the answer, and a connection: 0 means 10 s, less than 0 not at all, and
	// 3 s for a connection.
	Wait time.Duration
	// Grease is how often (once in so many operations) a frame is sent that the
	// gateway must ignore; 0 means 16, less than 0 never.
	Grease int
	// SkipLeaseCheck sends a lease that is not usable, so that the gateway refuses
	// it: for tests and demonstrations of a gateway.
	SkipLeaseCheck bool
	// Log gets structured lines; the zero value is silent.
	Log zerolog.Logger
	// Now is the wall clock; nil means time.Now.
	Now func() time.Time
}

const (
	defaultWait   = 10 * time.Second
	defaultGrease = 16
	// controlTimeout bounds one request of the control or catalogue protocol that
	// has no other deadline.
	controlTimeout = 10 * time.Second
	// Bounds of the wait for a connection.
	leastDial, mostDial = 3 * time.Second, 15 * time.Second
	// controlTries are for links that are lost before anything was sent.
	controlTries = 3
)

// Client keeps the connections to gateways warm. The caller must Close it.
type Client struct {
	config Config
	holder name.PeerID
	dialer dial.Dialer
	opened opened
	place  atomic.Pointer[place] // the last one that was looked for
	owned  bool                  // the host is ours

	mu     sync.Mutex // guards closed, and adding to wg
	closed bool
	wg     sync.WaitGroup // what runs after Wait
}

// New makes a Client. It dials nobody.
func New(config Config) (*Client, error) {
	if config.Leases == nil {
		return nil, errors.New("new client: no lease source")
	}
	if config.Wait == 0 {
		config.Wait = defaultWait
	}
	if config.Grease == 0 {
		config.Grease = defaultGrease
	}
	if config.Now == nil {
		config.Now = time.Now
	}
	c := &Client{config: config}
	c.dialer.Host, c.dialer.Timeout = config.Host, min(max(config.Wait, leastDial), mostDial)
	if c.dialer.Host == nil {
		if len(config.Key) != ed25519.PrivateKeySize {
			return nil, errors.New("new client: no identity key")
		}
		key, err := crypto.UnmarshalEd25519PrivateKey(config.Key)
		if err != nil {
			return nil, fmt.Errorf("new client: %w", err)
		}
		if c.dialer.Host, err = dial.NewHost(key); err != nil {
			return nil, err
		}
		c.owned = true
	}
	var err error
	if c.holder, err = name.ParsePeerID(c.dialer.Host.ID().String()); err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("new client: %w", err)
	}
	return c, nil
}

// Holder returns the peer ID that leases have to name.
func (c *Client) Holder() name.PeerID { return c.holder }

// Dial connects to the gateway of the current lease, so that the first operation
// need not. It is never necessary.
func (c *Client) Dial(ctx context.Context) error {
	_, to, err := c.lease(ctx)
	if err != nil {
		return err
	}
	return c.dialer.Connect(ctx, to)
}

// Close waits for what is left of operations that have ended and closes the
// host, if it is the Client's own. It is idempotent. Operations that run lose
// their link.
func (c *Client) Close() error {
	c.mu.Lock()
	done := c.closed
	c.closed = true
	c.mu.Unlock()
	c.wg.Wait()
	if done || !c.owned {
		return nil
	}
	if err := c.dialer.Host.Close(); err != nil {
		return fmt.Errorf("close host: %w", err)
	}
	return nil
}

// later runs f in a goroutine that Close waits for.
func (c *Client) later(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		f()
		return
	}
	c.wg.Go(f)
}

func (c *Client) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// Catalog lists what the current lease may run now. A refusal is a
// *RefusedError.
func (c *Client) Catalog(ctx context.Context) ([]protocol.CatalogEntry, error) {
	f, to, err := c.lease(ctx)
	if err != nil {
		return nil, err
	}
	var entries []protocol.CatalogEntry
	err = c.exchange(ctx, to, protocol.CatalogID, func(s *dial.Stream) error {
		if err := protocol.WriteCatalogRequest(s, &protocol.CatalogRequest{Lease: f.Chain}); err != nil {
			return err
		}
		entries, err = protocol.ReadCatalog(s)
		return err
	})
	return entries, err
}

// Status asks the gateway of the current lease, which may have expired, where an
// operation of this holder stands. A refusal is a *RefusedError.
func (c *Client) Status(ctx context.Context, key protocol.OperationKey) (*protocol.StatusReply, error) {
	_, to, err := c.pastLease(ctx)
	if err != nil {
		return nil, err
	}
	return ask[*protocol.StatusReply](ctx, c, to, &protocol.StatusRequest{OperationKey: key})
}

// Cancel asks the gateway of the current lease, which may have expired, to stop an
// operation of this holder, and returns what it was: a running one still ends in its
// own time, at most after grace, 0 for the gateway's. With a lease that is valid one that
// has not started never will. A refusal is a *RefusedError. spec: CONTROL-3
func (c *Client) Cancel(ctx context.Context, key protocol.OperationKey, grace time.Duration) (protocol.OperationState, error) {
	f, to, err := c.pastLease(ctx)
	if err != nil {
		return 0, err
	}
	reply, err := ask[*protocol.CancelReply](ctx, c, to, &protocol.CancelRequest{OperationKey: key, Lease: f.Chain, Grace: grace})
	if err != nil {
		return 0, err
	}
	return reply.State, nil
}

// ask sends one control request; a reply of another kind is a violation.
func ask[R protocol.ControlReply](ctx context.Context, c *Client, to peer.AddrInfo, q protocol.ControlRequest) (reply R, err error) {
	err = c.exchange(ctx, to, protocol.ControlID, func(s *dial.Stream) error {
		if err := protocol.WriteControlRequest(s, q); err != nil {
			return err
		}
		p, err := protocol.ReadControlReply(s)
		if err != nil {
			return err
		}
		switch p := p.(type) {
		case R:
			reply = p
		case *protocol.Refused:
			return p.Err()
		default:
			return &protocol.ViolationError{Rule: "CONTROL-2", Msg: "a reply of another kind"}
		}
		return nil
	})
	return reply, err
}

// pause returns false if ctx is done before d is over.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// exchange runs do on a stream that it closes, and resets when ctx is done.
func (c *Client) exchange(ctx context.Context, to peer.AddrInfo, id core.ID, do func(*dial.Stream) error) error {
	if c.isClosed() {
		return ErrClosed
	}
	ctx, cancel := context.WithTimeout(ctx, controlTimeout)
	defer cancel()
	s, err := c.dialer.Confirmed(ctx, to, id)
	for try := 1; errors.Is(err, dial.ErrLost) && try < controlTries && pause(ctx, 100*time.Millisecond<<try); try++ {
		s, err = c.dialer.Confirmed(ctx, to, id)
	}
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = s.Reset() })
	defer stop()
	if err := do(s); err != nil {
		_ = s.Reset()
		if ctx.Err() != nil {
			return fmt.Errorf("ask gateway: %w", context.Cause(ctx))
		}
		return fmt.Errorf("ask gateway: %w", dial.Refused(err))
	}
	_ = s.Close() // all was said; the other end may have closed first
	return nil
}
