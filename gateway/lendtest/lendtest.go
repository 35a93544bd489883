package lendtest

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	libp2pquic "github.com/libp2p/go-libp2p/p2p/transport/quic"
	"github.com/libp2p/go-libp2p/p2p/transport/quicreuse"
	"github.com/multiformats/go-multiaddr"
	"github.com/rs/zerolog"

	"github.com/lendcli/lend/gateway"
	"github.com/lendcli/lend/gateway/client"
	"github.com/lendcli/lend/gateway/ledger"
	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/policy"
	"github.com/lendcli/lend/protocol/name"
)

// TB is what New needs of a *testing.T, *testing.B or *testing.F.
type TB interface {
	Helper()
	Cleanup(f func())
	Fatalf(format string, args ...any)
}

// Config is what Open needs. It must not be changed after Open.
type Config struct {
	// Connectors are what the gateway has, as functions.
	Connectors []Connector
	// Runtime replaces them: a localhost.Host, or a host of the product's own. It
	// outlives the Gateway, which does not close it.
	Runtime gateway.Runtime
	// Grants are what leases allow; nil means everything of Connectors. Needed with
	// Runtime.
	Grants []lease.Grant
	// Policy is the text of a policy file, in which ${ISSUER}, ${CALLER} and ${GATEWAY}
	// stand for their IDs. "" lets the caller run all that Grants name.
	Policy string
	// Wait is the Client's: how long "not now" is waited for. 0 means 10 s.
	Wait time.Duration
	// Log gets the lines of the gateway; the zero value is silent.
	Log zerolog.Logger
	// Now is the wall clock of both ends; nil means time.Now.
	Now func() time.Time
}

// Gateway is a gateway with an owner, and one caller that is connected to it. Its
// methods are safe for concurrent use. The caller must Close it; New does.
type Gateway struct {
	// Node is the gateway, with its Status and whatever else an owner asks.
	Node *gateway.Node
	// Client is the caller, with a lease for one hour and all Grants.
	Client *client.Client

	config  Config
	wires   *wires
	self    *machine
	ledger  *ledger.Ledger
	dir     string
	issuer  identity
	caller  identity
	revoked revoked

	mu      sync.Mutex // guards what follows
	callers []func() error
	last    byte // of the addresses
	closed  bool
}

const (
	gatewayAddress = "/ip4/1.0.0.1/udp/4001/quic-v1"
	dialTimeout    = 20 * time.Second
	leaseLife      = time.Hour
	maxCallers     = 200
)

var (
	errNothing  = errors.New("no connectors, and no runtime")
	errNoGrants = errors.New("a runtime needs the grants that leases have")
	errClosed   = errors.New("the gateway is closed")
	errCallers  = errors.New("too many callers")
)

// New opens a Gateway that has these Connectors, all allowed. It is closed when the test
// has ended. A declaration that is not valid ends the test.
func New(t TB, connectors ...Connector) *Gateway {
	t.Helper()
	return Config{Connectors: connectors}.New(t)
}

// New is Open for a test, which it ends when that fails.
func (c Config) New(t TB) *Gateway {
	t.Helper()
	g, err := Open(c)
	if err != nil {
		t.Fatalf("%v", err)
		return nil
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Fatalf("%v", err)
		}
	})
	return g
}

// Open opens a Gateway outside of a test.
func Open(c Config) (*Gateway, error) {
	g := &Gateway{config: c, wires: newWires()}
	if err := g.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("open test gateway: %w", err), g.Close())
	}
	return g, nil
}

func (g *Gateway) open() (err error) {
	if g.config.Now == nil {
		g.config.Now = time.Now
	}
	if err := g.runtime(); err != nil {
		return err
	}
	own, err := newIdentity()
	if err != nil {
		return err
	}
	if g.issuer, err = newIdentity(); err != nil {
		return err
	}
	if g.caller, err = newIdentity(); err != nil {
		return err
	}
	if g.config.Policy == "" {
		g.config.Policy = policyOf(g.config.Grants)
	}
	rules, err := g.parse(g.config.Policy, own.id)
	if err != nil {
		return err
	}
	if g.dir, err = os.MkdirTemp("", "lendtest-"); err != nil {
		return err
	}
	if g.ledger, err = ledger.Open(ledger.Config{Dir: filepath.Join(g.dir, "ledger"), Now: g.config.Now}); err != nil {
		return err
	}
	listen, err := multiaddr.NewMultiaddr(gatewayAddress)
	if err != nil {
		return err
	}
	g.last = 1
	g.self = g.wires.machine(g.last)
	g.Node, err = gateway.New(gateway.Config{
		Key: own.key, Listen: []multiaddr.Multiaddr{listen}, QUIC: g.self.options(), Policy: rules, Runtime: g.config.Runtime,
		Ledger: g.ledger, Revocations: &g.revoked, Log: g.config.Log, Now: g.config.Now,
	})
	if err != nil {
		return err
	}
	return g.connect()
}

// runtime completes the configuration with what runs.
func (g *Gateway) runtime() error {
	if g.config.Runtime != nil {
		if len(g.config.Grants) == 0 {
			return errNoGrants
		}
		return nil
	}
	if len(g.config.Connectors) == 0 {
		return errNothing
	}
	f, err := newFunctions(g.config.Connectors)
	if err != nil {
		return err
	}
	g.config.Runtime = f
	if g.config.Grants == nil {
		g.config.Grants = f.grants()
	}
	return nil
}

func (g *Gateway) connect() error {
	file, err := g.Lease(nil)
	if err != nil {
		return err
	}
	if g.Client, err = g.newClient(g.caller, client.Config{Leases: client.Static(file), Wait: g.config.Wait}); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
	defer cancel()
	return g.Client.Dial(ctx)
}

// Close ends what runs and closes everything. It is idempotent.
func (g *Gateway) Close() (err error) {
	g.mu.Lock()
	callers := g.callers
	g.callers, g.closed = nil, true
	g.mu.Unlock()
	for _, c := range callers {
		err = errors.Join(err, c())
	}
	if g.Node != nil {
		err = errors.Join(err, g.Node.Close())
	}
	if g.self != nil {
		g.self.close()
	}
	if g.ledger != nil {
		err = errors.Join(err, g.ledger.Close())
		g.ledger = nil
	}
	if g.dir != "" {
		err = errors.Join(err, os.RemoveAll(g.dir))
	}
	return err
}

// Lease issues a lease to the Client's caller, after change (which may be nil) has
// changed what New gives it. Client.Static and a Client of NewCaller take it.
func (g *Gateway) Lease(change func(*lease.Lease)) (lease.File, error) {
	return g.issue(g.caller.id, change)
}

func (g *Gateway) issue(holder name.PeerID, change func(*lease.Lease)) (lease.File, error) {
	invocation, err := name.ParseInvocationID("lendtest")
	if err != nil {
		return lease.File{}, err
	}
	now := g.config.Now()
	l := lease.Lease{
		ID: lease.NewID(), Issuer: g.issuer.id, Holder: holder, Gateway: g.Node.ID(), Invocation: invocation,
		Authority: lease.AuthorityOwner, Grants: g.config.Grants, IssuedAt: now, NotBefore: now, NotAfter: now.Add(leaseLife),
		MaxOperations: 100_000, MaxConcurrent: 1024,
	}
	if change != nil {
		change(&l)
	}
	sealed, err := lease.Seal(l, g.issuer.private)
	if err != nil {
		return lease.File{}, err
	}
	g.revoked.add(l.ID)
	f := lease.File{Chain: [][]byte{sealed}}
	f.Lease, err = lease.Open(f.Chain)
	for _, a := range g.Node.Addrs() {
		f.Addresses = append(f.Addresses, a.String())
	}
	return f, err
}

// NewCaller makes another Client, as the same peer in another process, for config.Leases
// or, if that is nil, another lease like the first Client's. Key and Host are set here.
// Close closes it too.
func (g *Gateway) NewCaller(config client.Config) (*client.Client, error) {
	if config.Leases == nil {
		file, err := g.Lease(nil)
		if err != nil {
			return nil, err
		}
		config.Leases = client.Static(file)
	}
	return g.newClient(g.caller, config)
}

func (g *Gateway) newClient(who identity, config client.Config) (*client.Client, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil, errClosed
	}
	if g.last++; g.last > maxCallers {
		g.last--
		return nil, errCallers
	}
	m := g.wires.machine(g.last)
	h, err := newHost(who, m)
	if err != nil {
		m.close()
		return nil, err
	}
	config.Key, config.Host = nil, h
	if config.Now == nil {
		config.Now = g.config.Now
	}
	c, err := client.New(config)
	end := func() error {
		var err error
		if c != nil {
			err = c.Close()
		}
		err = errors.Join(err, h.Close())
		m.close()
		return err
	}
	if err != nil {
		return nil, errors.Join(err, end())
	}
	g.callers = append(g.callers, end)
	return c, nil
}

func newHost(who identity, m *machine) (host.Host, error) {
	return libp2p.New(
		libp2p.Identity(who.private), libp2p.NoListenAddrs, libp2p.Transport(libp2pquic.NewTransport),
		libp2p.QUICReuse(quicreuse.NewConnManager, m.options()...), libp2p.ResourceManager(&network.NullResourceManager{}),
		libp2p.DisableMetrics(), libp2p.DisableRelay(), libp2p.Ping(false), libp2p.DisableIdentifyAddressDiscovery(),
	)
}

// Reload puts another policy into force, as Config.Policy spells it. What it does not
// allow any more ends.
func (g *Gateway) Reload(text string) error {
	rules, err := g.parse(text, g.Node.ID())
	if err != nil {
		return err
	}
	g.Node.Reload(rules)
	return nil
}

// Revoke revokes all leases that were issued until now, as an owner does. What runs
// under them ends.
func (g *Gateway) Revoke() {
	g.revoked.all()
	g.Node.Recheck()
}

// Cut loses everything that is sent from now on, without a word to either end; Mend
// ends that.
func (g *Gateway) Cut() { g.wires.setCut(true) }

// Mend ends a Cut.
func (g *Gateway) Mend() { g.wires.setCut(false) }

func (g *Gateway) parse(text string, self name.PeerID) (*policy.Policy, error) {
	text = strings.NewReplacer("${ISSUER}", g.issuer.id.String(), "${CALLER}", g.caller.id.String(), "${GATEWAY}", self.String()).Replace(text)
	return policy.Parse("policy.yaml", []byte(text))
}

// policyOf allows the caller everything of the grants.
func policyOf(grants []lease.Grant) string {
	var b strings.Builder
	b.WriteString("policy: 1\nissuers:\n  owner: {id: ${ISSUER}, connectors: any, max_life: 1h}\npeers:\n  caller: ${CALLER}\n")
	b.WriteString("limits: {starts_per_minute: 60000, denials: 10000}\nallow:\n")
	for i, grant := range grants {
		var commands []string
		for _, c := range grant.Commands {
			commands = append(commands, c.String()+": {}")
		}
		fmt.Fprintf(&b, "  - name: grant %d\n    to: [caller]\n    connector: %s\n    version: %q\n    commands: {%s}\n",
			i+1, grant.Connector, grant.Version.String(), strings.Join(commands, ", "))
	}
	return b.String()
}

type identity struct {
	key     ed25519.PrivateKey
	private crypto.PrivKey
	id      name.PeerID
}

func newIdentity() (i identity, err error) {
	public, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return i, err
	}
	i.key = key
	if i.private, err = crypto.UnmarshalEd25519PrivateKey(key); err != nil {
		return i, err
	}
	i.id, err = name.PeerIDFromKey(public)
	return i, err
}

// revoked implements lease.RevocationChecker for the leases that were issued here.
type revoked struct {
	mu     sync.Mutex // guards what follows
	issued []lease.ID
	ids    map[lease.ID]bool
}

func (r *revoked) add(id lease.ID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.issued = append(r.issued, id)
}

func (r *revoked) all() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ids == nil {
		r.ids = map[lease.ID]bool{}
	}
	for _, id := range r.issued {
		r.ids[id] = true
	}
	r.issued = nil
}

// Revoked tells whether all was called after the lease was issued.
func (r *revoked) Revoked(s lease.Subject) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ids[s.Lease]
}
