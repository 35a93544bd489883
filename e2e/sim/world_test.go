package sim

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	libp2pquic "github.com/libp2p/go-libp2p/p2p/transport/quic"
	"github.com/libp2p/go-libp2p/p2p/transport/quicreuse"
	"github.com/multiformats/go-multiaddr"
	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/gateway"
	"github.com/lendcli/lend/gateway/client"
	"github.com/lendcli/lend/gateway/ledger"
	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/lease/revocation"
	"github.com/lendcli/lend/localhost/route"
	"github.com/lendcli/lend/policy"
	"github.com/lendcli/lend/protocol/argv"
	"github.com/lendcli/lend/protocol/name"
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// now is a wall clock that is in this century inside of a bubble too.
func now() time.Time { return time.Now().AddDate(26, 0, 0) }

// identity is a key with its names, the same in each run.
type identity struct {
	key  ed25519.PrivateKey
	priv crypto.PrivKey
	id   name.PeerID
}

func newIdentity(who string) identity {
	sum := sha256.Sum256([]byte(who))
	key := ed25519.NewKeyFromSeed(sum[:])
	return identity{key, must(crypto.UnmarshalEd25519PrivateKey(key)), must(name.PeerIDFromKey(key.Public().(ed25519.PublicKey)))}
}

var (
	gatewayKey = newIdentity("gateway")
	issuerKey  = newIdentity("issuer")
	agentKey   = newIdentity("agent")
)

const policyText = `
policy: 1
issuers:
  owner: {id: ISSUER, connectors: any}
peers:
  agent: AGENT
allow:
  - name: all
    to: [agent]
    connector: fx
    version: "1.0.0"
    commands: {echo: {}}
`

func parsePolicy() *policy.Policy {
	text := strings.NewReplacer("ISSUER", issuerKey.id.String(), "AGENT", agentKey.id.String()).Replace(policyText)
	return must(policy.Parse("policy.yaml", []byte(text)))
}

func descriptor() route.Descriptor {
	number := argv.Schema{Type: argv.TypeInteger}
	flag := func(n string) argv.Parameter {
		return argv.Parameter{Name: must(name.ParseParameter(n)), Schemas: []argv.Schema{number}, Flag: &argv.Flag{Name: "--" + n}}
	}
	c := argv.Contract{Command: "fx", Commands: []argv.Command{{
		Name: must(name.ParseCommand("echo")), Description: "echoes", Effect: argv.EffectRead, Arguments: []string{"echo"},
		Parameters: []argv.Parameter{flag("code"), flag("id"), {
			Name: must(name.ParseParameter("input")), Required: true, Stdin: &argv.Stdin{MaxBytes: 64 << 20},
			Schemas: []argv.Schema{{Type: argv.TypeString, FreeText: true}},
		}, flag("pause")},
	}}}
	sum := sha256.Sum256(must(argv.CanonicalJSON(c.Semantics())))
	return route.Descriptor{Contract: c, Identity: route.Identity{
		Connection: must(name.ParseConnectionID("main")), Connector: must(name.ParseConnectorKey("fx")),
		Version: must(name.ParseVersion("1.0.0")), ReleaseDigest: strings.Repeat("0", 64),
		Generation: route.Generation{Epoch: "e", Number: 1}, ContractHash: "sha256:" + hex.EncodeToString(sum[:]),
	}}
}

// world is a network with one gateway, which may have several lives, and callers.
type world struct {
	t       *testing.T
	net     *simnet // nil: real sockets
	record  *record
	policy  *policy.Policy
	set     *revocation.Set
	listen  []multiaddr.Multiaddr
	base    string
	callers int
	wg      sync.WaitGroup // lives that close, callers that close

	mu      sync.Mutex // guards what follows
	life    *life
	lives   int
	crashed bool
	over    bool // no fault happens any more
}

// spawn runs f beside the plan, unless that is over.
func (w *world) spawn(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.over {
		w.wg.Go(f)
	}
}

// settle ends all faults, and waits for what they began.
func (w *world) settle() {
	w.mu.Lock()
	w.over = true
	w.mu.Unlock()
	w.wg.Wait()
	if w.net != nil {
		w.net.heal()
	}
}

func (w *world) isOver() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.over
}

// life is one process of the gateway.
type life struct {
	node    *gateway.Node
	ledger  *ledger.Ledger
	dir     string
	runtime *machineRuntime
	machine *machine
}

func newWorld(t *testing.T, n *simnet, listen string) *world {
	t.Helper()
	w := &world{
		t: t, net: n, record: &record{starts: map[int]int{}, exits: map[int][]route.Exit{}},
		policy: parsePolicy(), set: must(revocation.New()), base: t.TempDir(),
		listen: []multiaddr.Multiaddr{must(multiaddr.NewMultiaddr(listen))},
	}
	w.serve(filepath.Join(w.base, "ledger-0"))
	return w
}

// serve begins a life on the ledger in dir.
func (w *world) serve(dir string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lives++
	l := &life{dir: dir, runtime: &machineRuntime{record: w.record, descriptor: descriptor(), procs: map[*proc]bool{}}}
	var err error
	l.ledger, err = ledger.Open(ledger.Config{Dir: dir, Now: now})
	require.NoError(w.t, err)
	config := gateway.Config{
		Key: gatewayKey.key, Listen: w.listen, Policy: w.policy, Runtime: l.runtime, Ledger: l.ledger, Revocations: w.set, Now: now,
	}
	if w.net != nil {
		l.machine = &machine{net: w.net, ip: gatewayIP}
		config.QUIC = l.machine.options()
	}
	l.node, err = gateway.New(config)
	require.NoError(w.t, err)
	w.life = l
}

// end closes a life, politely.
func (l *life) end(t *testing.T) {
	t.Helper()
	require.NoError(t, l.node.Close())
	if l.machine != nil {
		l.machine.close()
	}
	require.NoError(t, l.ledger.Close())
}

// restart closes the gateway and opens another on the same ledger.
func (w *world) restart() {
	w.mu.Lock()
	l := w.life
	w.life = nil
	w.mu.Unlock()
	if l == nil {
		return // it is restarting
	}
	l.end(w.t)
	w.serve(l.dir)
}

// crash stops the gateway's machine between two instructions, as far as anyone
// outside can see: the network first, then the disk as it is, then the processes.
// Another gateway starts on a copy of it two seconds later.
func (w *world) crash() {
	w.mu.Lock()
	l := w.life
	if w.over {
		l = nil
	}
	if l != nil {
		w.life, w.crashed = nil, true
		w.wg.Add(2)
	}
	dir := filepath.Join(w.base, fmt.Sprintf("ledger-%d", w.lives))
	w.mu.Unlock()
	if l == nil {
		return // it is restarting, or all is over
	}
	w.net.detach(gatewayIP)
	l.runtime.freeze()
	require.NoError(w.t, copyDir(l.dir, dir))
	l.runtime.off()
	go func() {
		defer w.wg.Done()
		l.end(w.t) // nobody hears of it
	}()
	go func() {
		defer w.wg.Done()
		time.Sleep(2 * time.Second) // the bubble's clock
		w.serve(dir)
	}()
}

// copyDir copies plain files, for the owner's eyes only.
func copyDir(from, to string) error {
	if err := os.Mkdir(to, 0o700); err != nil {
		return err
	}
	files, err := os.ReadDir(from)
	for _, f := range files {
		b, err := os.ReadFile(filepath.Join(from, f.Name()))
		if err == nil {
			err = os.WriteFile(filepath.Join(to, f.Name()), b, 0o600)
		}
		if err != nil {
			return err
		}
	}
	return err
}

// finish closes everything, and returns where the ledger is.
func (w *world) finish() string {
	w.wg.Wait()
	w.mu.Lock()
	l := w.life
	w.mu.Unlock()
	require.NotNil(w.t, l)
	l.end(w.t)
	require.Zero(w.t, w.record.alive, "processes are left")
	return l.dir
}

// caller is one process of the holder's.
type caller struct {
	*client.Client
	host    host.Host
	machine *machine
	close   func()
}

// caller makes one whose run streams follow s.
func (w *world) caller(s *script, grease bool) *caller {
	w.t.Helper()
	w.mu.Lock()
	w.callers++
	ip := fmt.Sprintf("1.0.1.%d", w.callers)
	w.mu.Unlock()
	options := []libp2p.Option{
		libp2p.Identity(agentKey.priv), libp2p.NoListenAddrs, libp2p.ResourceManager(&network.NullResourceManager{}),
		libp2p.DisableMetrics(), libp2p.DisableRelay(), libp2p.Ping(false), libp2p.DisableIdentifyAddressDiscovery(),
	}
	c := &caller{}
	if w.net != nil {
		c.machine = &machine{net: w.net, ip: ip}
		options = append(options, libp2p.Transport(libp2pquic.NewTransport),
			libp2p.QUICReuse(quicreuse.NewConnManager, c.machine.options()...))
	}
	h, err := libp2p.New(options...)
	require.NoError(w.t, err)
	c.host = &tappedHost{h, s}
	// Faults that heal add up to less than the wait.
	config := client.Config{Host: c.host, Leases: client.Static(w.lease()), Grease: -1, Wait: 30 * time.Second, Now: now}
	if grease {
		config.Grease = 1
	}
	c.Client, err = client.New(config)
	require.NoError(w.t, err)
	c.close = sync.OnceFunc(func() {
		_ = c.Client.Close()
		_ = h.Close()
		if c.machine != nil {
			c.machine.close()
		}
	})
	return c
}

func (w *world) lease() lease.File {
	now := now()
	l := lease.Lease{
		ID: lease.NewID(), Issuer: issuerKey.id, Holder: agentKey.id, Gateway: gatewayKey.id,
		Invocation: must(name.ParseInvocationID("task-1")), Authority: lease.AuthorityOwner,
		IssuedAt: now, NotBefore: now, NotAfter: now.Add(10 * time.Minute),
		MaxOperations: 1000, MaxConcurrent: 100, Purpose: "test",
		Grants: []lease.Grant{{
			Connector: must(name.ParseConnectorKey("fx")), Version: must(name.ParseVersion("1.0.0")),
			Commands: []name.Command{must(name.ParseCommand("echo"))},
		}},
	}
	sealed := must(lease.Seal(l, issuerKey.priv))
	f := lease.File{Chain: [][]byte{sealed}}
	for _, a := range w.listen {
		f.Addresses = append(f.Addresses, a.String())
	}
	return f
}

// tally reads a ledger: for each operation its ends, and whether it was started.
type tally struct {
	starts map[string]int
	ends   map[string][]ledger.End
}

func readLedger(dir string) (tally, error) {
	out := tally{map[string]int{}, map[string][]ledger.End{}}
	of := map[uint64]string{}
	err := ledger.Walk(dir, func(e ledger.Entry) error {
		switch {
		case e.Start != nil:
			op := e.Start.Key.Operation.String()
			out.starts[op]++
			of[e.Index] = op
		case e.End != nil:
			op := of[e.Of]
			out.ends[op] = append(out.ends[op], *e.End)
		}
		return nil
	})
	if err == nil {
		_, err = ledger.Verify(dir)
	}
	return out, err
}

// checker is an output of the caller's: each byte is looked at where it stands.
type checker struct {
	salt int
	mu   sync.Mutex
	n    int
	bad  error
}

func (c *checker) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := agrees(b, c.salt, c.n); err != nil && c.bad == nil {
		c.bad = err
	}
	c.n += len(b)
	return len(b), nil
}

// slowInput gives the input in steps, with pauses.
type slowInput struct {
	r    *bytes.Reader
	step int
}

func (s *slowInput) Read(b []byte) (int, error) {
	time.Sleep(15 * time.Millisecond) // the bubble's clock
	return s.r.Read(b[:min(len(b), s.step)])
}
