package broker

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/rs/zerolog"

	"github.com/lendcli/lend/gateway/client"
	"github.com/lendcli/lend/gateway/client/broker/native"
	"github.com/lendcli/lend/gateway/client/broker/wire"
	"github.com/lendcli/lend/gateway/client/internal/dial"
	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/protocol"
	"github.com/lendcli/lend/protocol/name"
)

// Config is what New needs. It must not be changed after New.
type Config struct {
	// Key is the holder's identity: an Ed25519 private key of 64 bytes.
	Key ed25519.PrivateKey
	// Shims says which Connector a shim stands for; nil: there are none.
	Shims func(as string) (name.ConnectorKey, error)
	// Local runs the caller's own Connectors; nil: there are none, so the authority
	// "caller" leads nowhere.
	Local Local
	// Report says how a call is told to people and programs. The Cmd is nil if nothing
	// could be sent, or if Local ran it; Exit.Ended is set afterwards. nil: the exit
	// status and the error's text.
	Report func(cmd *client.Cmd, err error, took time.Duration) wire.Exit
	// Help writes what is lent to the error output of a shim whose command line asks for
	// it and is refused. The lines are at least one; texts in them are the gateways'. nil:
	// nothing is written.
	Help func(to io.Writer, as string, lines []native.Line)
	// Progress shows how many bytes pass, for calls of lend run that ask for it. It
	// returns the streams to use, and what ends it. nil: nothing is shown.
	Progress func(Streams) (Streams, func())
	// Wait is client.Config.Wait for shims: 0 means 10 s.
	Wait time.Duration
	// Log gets structured lines; the zero value is silent.
	Log zerolog.Logger
	// Now is the wall clock; nil means time.Now.
	Now func() time.Time
}

// Bounds of a Broker.
const (
	maxSessions = 256
	maxHoldings = 64 // leases of one session
	maxLoose    = 64 // leases that lend run brought
)

// How often is looked for leases that have expired, and for lost connections.
const (
	lookEvery = time.Second
	mostPause = time.Minute // between two dials of a gateway that does not answer
)

// Errors of a Broker.
var (
	// ErrNoSession: the handle is of no session that there is.
	ErrNoSession = errors.New("there is no such session: its leases have expired, it was closed, or the broker was started anew")
	// ErrSessionClosed: the session was closed while a command ran in it.
	ErrSessionClosed = errors.New("the session was closed")
	// ErrOtherInvocation: a lease belongs to another invocation than the session.
	ErrOtherInvocation = errors.New("the lease is of another invocation")
	// ErrFull: the broker has as many sessions or leases as it takes.
	ErrFull = errors.New("the broker holds too many leases")
	// ErrClosed: the broker is closed.
	ErrClosed = errors.New("the broker is closed")
)

// handle is a session's, hashed: what is compared gives nothing away.
type handle [sha256.Size]byte

func handleOf(s string) handle { return sha256.Sum256([]byte(s)) }

// scope says which leases share a session unless one is named.
type scope struct {
	issuer     name.PeerID
	invocation name.InvocationID
}

// Broker holds leases and connections. It is safe for concurrent use. The caller must
// Close it.
type Broker struct {
	config Config
	holder name.PeerID
	host   host.Host
	ctx    context.Context //nolint:containedctx // a Broker is a lifetime
	end    context.CancelFunc
	wg     sync.WaitGroup // keepers
	kick   chan struct{}  // dial now

	mu       sync.Mutex // guards what follows
	closed   bool
	sessions map[handle]*session
	scopes   map[scope]*session
	loose    map[looseKey]*holding
}

// New makes a Broker. It dials nobody yet.
func New(config Config) (*Broker, error) {
	if len(config.Key) != ed25519.PrivateKeySize {
		return nil, errors.New("new broker: no identity key")
	}
	if config.Now == nil {
		config.Now = time.Now
	}
	if config.Wait == 0 {
		config.Wait = defaultWait
	}
	if config.Report == nil {
		config.Report = report
	}
	if config.Shims == nil {
		config.Shims = func(string) (name.ConnectorKey, error) { return name.ConnectorKey{}, errNoShims }
	}
	key, err := crypto.UnmarshalEd25519PrivateKey(config.Key)
	if err != nil {
		return nil, fmt.Errorf("new broker: %w", err)
	}
	b := &Broker{
		config: config, kick: make(chan struct{}, 1),
		sessions: map[handle]*session{}, scopes: map[scope]*session{}, loose: map[looseKey]*holding{},
	}
	if b.host, err = dial.NewHost(key); err != nil {
		return nil, err
	}
	if b.holder, err = name.ParsePeerID(b.host.ID().String()); err != nil {
		return nil, errors.Join(err, b.host.Close())
	}
	b.ctx, b.end = context.WithCancel(context.Background())
	b.wg.Go(b.expire)
	b.wg.Go(b.keepWarm)
	return b, nil
}

var errNoShims = errors.New("there are no shims")

// Holder returns the peer ID that leases have to name.
func (b *Broker) Holder() name.PeerID { return b.holder }

// Close ends all sessions, waits for what runs in them, and closes the connections. It
// is idempotent.
func (b *Broker) Close() error {
	b.mu.Lock()
	done := b.closed
	b.closed = true
	var all []*session
	for _, s := range b.sessions {
		all = append(all, s)
	}
	var loose []*holding
	for k, h := range b.loose {
		loose = append(loose, h)
		delete(b.loose, k)
	}
	b.mu.Unlock()
	if done {
		b.wg.Wait()
		return nil
	}
	b.end()
	for _, s := range all {
		b.forget(s)
	}
	for _, h := range loose {
		h.leave()
	}
	b.wg.Wait()
	if err := b.host.Close(); err != nil {
		return fmt.Errorf("close host: %w", err)
	}
	return nil
}

// Accept takes a lease in and returns the handle of its session: that of the session
// named by join, which must be of the same invocation, or of those that came from the
// same issuer for the same invocation, or a new one. The error is that of
// lease.Lease.Usable, ErrNoSession, ErrOtherInvocation, ErrFull or ErrClosed.
func (b *Broker) Accept(f lease.File, join string) (string, error) {
	return b.accept(b.ctx, client.Static(f), false, join)
}

// AcceptSource is Accept for a source that renews its lease: it is asked for each
// operation. Its lease must stay one of the same gateway, issuer and invocation; when
// it has none any more, nothing runs.
func (b *Broker) AcceptSource(ctx context.Context, source client.LeaseSource, join string) (string, error) {
	return b.accept(ctx, source, true, join)
}

func (b *Broker) accept(ctx context.Context, source client.LeaseSource, renews bool, join string) (string, error) {
	h, err := b.hold(ctx, source, renews, b.config.Wait)
	if err != nil {
		return "", fmt.Errorf("accept lease: %w", err)
	}
	text, err := b.keep(h, join)
	if err != nil {
		h.leave()
		return "", fmt.Errorf("accept lease: %w", err)
	}
	select {
	case b.kick <- struct{}{}:
	default: // it is on its way
	}
	return text, nil
}

// keep puts h into its session.
func (b *Broker) keep(h *holding, join string) (string, error) {
	first := h.current()
	sc := scope{first.Lease.Issuer, first.Lease.Invocation}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return "", ErrClosed
	}
	s := b.scopes[sc]
	if join != "" {
		if s = b.sessions[handleOf(join)]; s == nil {
			return "", ErrNoSession
		}
	}
	if s != nil && s.invocation != sc.invocation {
		return "", ErrOtherInvocation
	}
	if s == nil {
		if len(b.sessions) >= maxSessions {
			return "", ErrFull
		}
		s = newSession(b.ctx, rand.Text()+rand.Text(), sc)
		b.sessions[handleOf(s.text)] = s
		b.scopes[sc] = s
	}
	return s.text, s.add(h)
}

// CloseSession ends a session and cancels what runs in it: ErrNoSession.
func (b *Broker) CloseSession(text string) error {
	s, err := b.session(text)
	if err != nil {
		return err
	}
	b.forget(s)
	return nil
}

func (b *Broker) session(text string) (*session, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.sessions[handleOf(text)]
	if s == nil {
		return nil, ErrNoSession
	}
	return s, nil
}

// forget ends s and waits for what runs in it.
func (b *Broker) forget(s *session) {
	b.mu.Lock()
	b.unlist(s)
	b.mu.Unlock()
	s.close()
}

// unlist makes s a session that nobody finds: no lease is added to it any more. The
// caller holds mu, and closes it afterwards.
func (b *Broker) unlist(s *session) {
	delete(b.sessions, handleOf(s.text))
	if b.scopes[s.scope] == s {
		delete(b.scopes, s.scope)
	}
}

// gone takes a lease out of its session that can run nothing more, and ends the session
// if it was the last.
func (b *Broker) gone(s *session, h *holding) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.remove(h) {
		b.unlist(s)
		b.wg.Go(s.close) // the caller is one of those that it waits for
	}
}

// expire lets go of leases that have expired.
func (b *Broker) expire() {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-b.ctx.Done():
			return
		case <-tick.C:
			b.renew()
			b.sweep()
		}
	}
}

func (b *Broker) renew() {
	for _, s := range b.live() {
		for _, h := range s.all() {
			h.renew(b.ctx, b.config.Now())
		}
	}
}

func (b *Broker) live() []*session {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Collect(maps.Values(b.sessions))
}

func (b *Broker) sweep() {
	now := b.config.Now()
	b.mu.Lock()
	var over []*session
	for _, s := range b.sessions {
		if s.sweep(now) {
			b.unlist(s)
			over = append(over, s)
		}
	}
	var loose []*holding
	for k, h := range b.loose {
		if h.expired(now) {
			loose = append(loose, h)
			delete(b.loose, k)
		}
	}
	b.mu.Unlock()
	for _, s := range over {
		b.config.Log.Debug().Str("invocation", s.invocation.String()).Msg("session ended")
		s.close()
	}
	for _, h := range loose {
		h.leave()
	}
}

// keepWarm dials the gateways of the sessions that there is no connection to.
func (b *Broker) keepWarm() {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	next, pause := map[name.PeerID]time.Time{}, map[name.PeerID]time.Duration{}
	for {
		select {
		case <-b.ctx.Done():
			return
		case <-b.kick:
			clear(next) // a new lease may know where they are
		case <-tick.C:
		}
		for gateway, h := range b.cold() {
			if time.Now().Before(next[gateway]) {
				continue
			}
			if err := h.client.Dial(b.ctx); err == nil {
				delete(next, gateway)
				delete(pause, gateway)
				continue
			}
			pause[gateway] = min(max(2*pause[gateway], lookEvery), mostPause)
			next[gateway] = time.Now().Add(pause[gateway])
		}
	}
}

// cold returns a lease for each gateway that there is no connection to.
func (b *Broker) cold() map[name.PeerID]*holding {
	out := map[name.PeerID]*holding{}
	for _, s := range b.live() {
		for _, h := range s.all() {
			if gateway := h.current().Lease.Gateway; !b.connected(gateway) {
				out[gateway] = h
			}
		}
	}
	return out
}

func (b *Broker) connected(gateway name.PeerID) bool {
	id, err := peer.Decode(gateway.String())
	return err == nil && len(b.host.Network().ConnsToPeer(id)) > 0
}

// addresses are those of a gateway that any lease knows, those of f first.
func (b *Broker) addresses(f lease.File) []string {
	out := slices.Clone(f.Addresses)
	for _, s := range b.live() {
		for _, h := range s.all() {
			other := h.current()
			if other.Lease.Gateway != f.Lease.Gateway {
				continue
			}
			for _, a := range other.Addresses {
				if !slices.Contains(out, a) && len(out) < maxAddresses {
					out = append(out, a)
				}
			}
		}
	}
	return out
}

const (
	maxAddresses = 32
	defaultWait  = 10 * time.Second
)

// report is what is said of a call if nobody else says it.
func report(_ *client.Cmd, err error, _ time.Duration) wire.Exit {
	e := wire.Exit{Status: byte(client.ExitStatus(err))}
	var exit *client.ExitError
	if err != nil && !errors.As(err, &exit) {
		e.Message = err.Error()
	}
	return e
}

// Local runs the Connectors of the caller's own machine, under the same grammar. It is
// called from several goroutines.
type Local interface {
	// Catalog lists what may be run of a Connector; none is no error.
	Catalog(ctx context.Context, key name.ConnectorKey) ([]protocol.CatalogEntry, error)
	// Run runs one of them. The errors are those of client.Cmd; nil means that the
	// command has ended with status 0.
	Run(ctx context.Context, entry protocol.CatalogEntry, args []string, streams Streams) error
}
