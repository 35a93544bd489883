package gateway

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	libp2pprotocol "github.com/libp2p/go-libp2p/core/protocol"
	"github.com/multiformats/go-multiaddr"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lendcli/lend/gateway/door"
	"github.com/lendcli/lend/gateway/internal/fakehost"
	"github.com/lendcli/lend/gateway/ledger"
	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/lease/revocation"
	"github.com/lendcli/lend/localhost/route"
	"github.com/lendcli/lend/policy"
	"github.com/lendcli/lend/protocol"
	"github.com/lendcli/lend/protocol/argv"
	"github.com/lendcli/lend/protocol/name"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// Process-wide workers of the libraries, started once.
		goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"),
		goleak.IgnoreAnyFunction("github.com/quic-go/quic-go.(*Transport).runSendQueue"),
	)
}

const patience = 20 * time.Second

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// identity is one key with its names.
type identity struct {
	key  ed25519.PrivateKey
	priv crypto.PrivKey
	id   name.PeerID
}

func newIdentity(t *testing.T) identity {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	priv, err := crypto.UnmarshalEd25519PrivateKey(key)
	require.NoError(t, err)
	return identity{key, priv, must(name.PeerIDFromKey(key.Public().(ed25519.PublicKey)))}
}

// clock is a wall clock that a test moves.
type clock struct{ ahead atomic.Int64 }

func (c *clock) now() time.Time          { return time.Now().Add(time.Duration(c.ahead.Load())) }
func (c *clock) advance(d time.Duration) { c.ahead.Add(int64(d)) }

// revokedSet is a set that a test changes.
type revokedSet struct {
	set atomic.Pointer[revocation.Set]
}

func (r *revokedSet) Revoked(s lease.Subject) bool { return r.set.Load().Revoked(s) }

// world is one gateway with its owner, issuer and a named peer.
type world struct {
	t       *testing.T
	gateway identity
	issuer  identity
	agent   identity
	host    *fakehost.Host
	ledger  *ledger.Ledger
	node    *Node
	clock   *clock
	revoked *revokedSet
	policy  string
	dir     string // of the ledger
}

const basicPolicy = `
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
    commands: {print: {}, cat: {}, text: {}, exit: {}, sleep: {}, flood: {}, close: {}}
`

func (w *world) parse(text string) *policy.Policy {
	w.t.Helper()
	text = strings.NewReplacer("ISSUER", w.issuer.id.String(), "AGENT", w.agent.id.String()).Replace(text)
	p, err := policy.Parse("policy.yaml", []byte(text))
	require.NoError(w.t, err)
	return p
}

func newWorld(t *testing.T, edit ...func(*world, *Config)) *world {
	t.Helper()
	w := &world{
		t: t, gateway: newIdentity(t), issuer: newIdentity(t), agent: newIdentity(t),
		host: &fakehost.Host{Programs: programs()}, clock: &clock{}, revoked: &revokedSet{}, policy: basicPolicy,
	}
	w.revoked.set.Store(must(revocation.New()))
	w.host.Publish(descriptor())
	var err error
	w.dir = t.TempDir() + "/ledger"
	w.ledger, err = ledger.Open(ledger.Config{Dir: w.dir})
	require.NoError(t, err)
	cfg := Config{
		Key: w.gateway.key, Runtime: w.host, Ledger: w.ledger, Revocations: w.revoked, Now: w.clock.now,
		Listen: []multiaddr.Multiaddr{
			must(multiaddr.NewMultiaddr("/ip4/127.0.0.1/tcp/0")),
			must(multiaddr.NewMultiaddr("/ip4/127.0.0.1/udp/0/quic-v1")),
		},
	}
	cfg.Policy = w.parse(w.policy)
	for _, e := range edit {
		e(w, &cfg)
	}
	w.serve(cfg)
	t.Cleanup(func() {
		require.NoError(t, w.node.Close())
		require.NoError(t, w.ledger.Close())
		require.Zero(t, w.host.Running.Load(), "a process is left")
		require.Zero(t, w.node.budget.Used(), "bytes are still kept")
	})
	return w
}

func (w *world) serve(cfg Config) {
	w.t.Helper()
	n, err := New(cfg)
	require.NoError(w.t, err)
	w.node = n
}

func withPolicy(text string) func(*world, *Config) {
	return func(w *world, c *Config) { c.Policy = w.parse(text) }
}

// transports are those that every test of streams runs over.
func transports() []string { return []string{"tcp", "quic"} }

// descriptor is the one Connector of the tests.
func descriptor() route.Descriptor {
	text := argv.Schema{Type: argv.TypeString, FreeText: true}
	number := argv.Schema{Type: argv.TypeInteger}
	command := func(n string, p ...argv.Parameter) argv.Command {
		return argv.Command{Name: must(name.ParseCommand(n)), Description: "does " + n, Effect: argv.EffectRead, Arguments: []string{n}, Parameters: p}
	}
	size := argv.Parameter{Name: must(name.ParseParameter("size")), Schemas: []argv.Schema{number}, Flag: &argv.Flag{Name: "--size"}}
	stdin := func(l *argv.Stdin) argv.Parameter {
		return argv.Parameter{Name: must(name.ParseParameter("input")), Required: true, Schemas: []argv.Schema{text}, Stdin: l}
	}
	c := argv.Contract{Command: "fx", Commands: []argv.Command{
		command("cat", stdin(&argv.Stdin{MaxBytes: 64 << 20})),
		command("close", stdin(&argv.Stdin{MaxBytes: 64 << 20})),
		command("exit", argv.Parameter{Name: must(name.ParseParameter("code")), Schemas: []argv.Schema{number}, Flag: &argv.Flag{Name: "--code"}}),
		command("flood"),
		command("print", size),
		command("sleep"),
		command("text", stdin(&argv.Stdin{MaxBytes: 1 << 10, Text: true})),
	}}
	sum := sha256.Sum256(must(argv.CanonicalJSON(c.Semantics())))
	return route.Descriptor{Contract: c, Identity: route.Identity{
		Connection: must(name.ParseConnectionID("main")), Connector: must(name.ParseConnectorKey("fx")),
		Version: must(name.ParseVersion("1.0.0")), ReleaseDigest: strings.Repeat("0", 64),
		Generation: route.Generation{Epoch: "e", Number: 1}, ContractHash: "sha256:" + hex.EncodeToString(sum[:]),
	}}
}

func programs() map[string]fakehost.Program {
	sleep := func(c *fakehost.Child) route.Exit {
		<-c.Terminated
		return route.Exit{Signal: "SIGTERM"}
	}
	return map[string]fakehost.Program{
		"sleep": sleep,
		"print": func(c *fakehost.Child) route.Exit {
			n, _ := strconv.Atoi(strings.TrimPrefix(c.Arguments[len(c.Arguments)-1], "--size="))
			if _, err := c.Stdout.Write(pattern(n)); err != nil {
				return route.Exit{Signal: "SIGPIPE"}
			}
			return route.Exit{}
		},
		"cat": func(c *fakehost.Child) route.Exit {
			_, _ = io.Copy(c.Stdout, c.Stdin)
			return route.Exit{}
		},
		"text": func(c *fakehost.Child) route.Exit {
			_, _ = io.Copy(c.Stdout, c.Stdin)
			return route.Exit{}
		},
		"close": func(c *fakehost.Child) route.Exit {
			_ = c.Stdin.Close()
			return sleep(c)
		},
		"exit": func(c *fakehost.Child) route.Exit {
			n, _ := strconv.Atoi(strings.TrimPrefix(c.Arguments[len(c.Arguments)-1], "--code="))
			if n > 255 {
				return route.Exit{Signal: "SIGSEGV", Core: true}
			}
			return route.Exit{Code: n}
		},
		"flood": func(c *fakehost.Child) route.Exit {
			go func() {
				select {
				case <-c.Terminated:
				case <-c.Killed:
				}
				_ = c.Stdout.Close()
			}()
			b := make([]byte, 32<<10)
			for {
				if _, err := c.Stdout.Write(b); err != nil {
					return route.Exit{Signal: "SIGPIPE"}
				}
			}
		},
	}
}

func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i ^ i>>8 ^ i>>16)
	}
	return b
}

// lease seals a lease for the agent, edited.
func (w *world) lease(edit ...func(*lease.Lease)) []byte {
	w.t.Helper()
	return w.seal(w.issuer, edit...)
}

func (w *world) seal(by identity, edit ...func(*lease.Lease)) []byte {
	w.t.Helper()
	now := w.clock.now()
	l := lease.Lease{
		ID: lease.NewID(), Issuer: by.id, Holder: w.agent.id, Gateway: w.gateway.id,
		Invocation: must(name.ParseInvocationID("task-1")), Authority: lease.AuthorityOwner,
		IssuedAt: now, NotBefore: now, NotAfter: now.Add(10 * time.Minute),
		MaxOperations: 1000, MaxConcurrent: 100, Purpose: "test",
		Grants: []lease.Grant{{
			Connector: must(name.ParseConnectorKey("fx")), Version: must(name.ParseVersion("1.0.0")),
		}},
	}
	for _, c := range []string{"cat", "close", "exit", "flood", "print", "sleep", "text"} {
		l.Grants[0].Commands = append(l.Grants[0].Commands, must(name.ParseCommand(c)))
	}
	for _, e := range edit {
		e(&l)
	}
	b, err := lease.Seal(l, by.priv)
	require.NoError(w.t, err)
	return b
}

var operations atomic.Int64

func newOperation() name.OperationID {
	return must(name.ParseOperationID(fmt.Sprintf("operation-%08d", operations.Add(1))))
}

// start is a Start of one command under l.
func (w *world) start(l []byte, command string, args ...string) *protocol.Start {
	return &protocol.Start{
		Operation: newOperation(), Lease: [][]byte{l},
		Connector: must(name.ParseConnectorKey("fx")), Version: must(name.ParseVersion("1.0.0")),
		Command: must(name.ParseCommand(command)), Arguments: args,
		Stdin: command == "cat" || command == "text" || command == "close",
	}
}

// attach names the operation of s.
func (w *world) attach(s *protocol.Start, token []byte, have uint64) *protocol.Attach {
	return &protocol.Attach{
		Issuer: w.issuer.id, Invocation: must(name.ParseInvocationID("task-1")), Operation: s.Operation,
		Token: token, Stdout: have,
	}
}

func (w *world) key(s *protocol.Start) protocol.OperationKey {
	return protocol.OperationKey{Issuer: w.issuer.id, Invocation: must(name.ParseInvocationID("task-1")), Operation: s.Operation}
}

// dialer is a caller's host with one connection to the gateway.
type dialer struct {
	t    *testing.T
	host host.Host
	to   peer.ID
}

func (w *world) dial(who identity, transport string) *dialer {
	w.t.Helper()
	d, err := w.tryDial(who, transport)
	require.NoError(w.t, err)
	return d
}

func (w *world) tryDial(who identity, transport string) (*dialer, error) {
	w.t.Helper()
	h, err := libp2p.New(libp2p.Identity(who.priv), libp2p.NoListenAddrs, libp2p.Muxer("/yamux/1.0.0", door.Muxer()),
		libp2p.ResourceManager(&network.NullResourceManager{}), libp2p.DisableMetrics())
	require.NoError(w.t, err)
	w.t.Cleanup(func() { _ = h.Close() })
	var addrs []multiaddr.Multiaddr
	for _, a := range w.node.host.Addrs() {
		if strings.Contains(a.String(), "/"+strings.Replace(transport, "quic", "quic-v1", 1)) {
			addrs = append(addrs, a)
		}
	}
	require.NotEmpty(w.t, addrs)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err = h.Connect(ctx, peer.AddrInfo{ID: w.node.host.ID(), Addrs: addrs})
	return &dialer{w.t, h, w.node.host.ID()}, err
}

func (d *dialer) stream(id string) network.Stream {
	d.t.Helper()
	s, err := d.tryStream(id)
	require.NoError(d.t, err)
	return s
}

func (d *dialer) tryStream(id string) (network.Stream, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s, err := d.host.NewStream(ctx, d.to, libp2pprotocol.ID(id))
	if err != nil {
		return nil, err
	}
	return s, s.SetDeadline(time.Now().Add(patience))
}

// caller is the other end of a run stream.
type remote struct {
	t      *testing.T
	stream network.Stream
	frames *protocol.Reader
	*protocol.Writer

	accepted       *protocol.Accepted
	refused        *protocol.Refused
	exit           *protocol.Exit
	closed         bool
	stdout, stderr []byte
	acked          protocol.Ack
	taken          chan uint64
}

func (d *dialer) run(f protocol.Frame) *remote {
	d.t.Helper()
	s := d.stream(protocol.RunID)
	r := &remote{t: d.t, stream: s, frames: protocol.NewReader(s, protocol.Caller), Writer: protocol.NewWriter(s), taken: make(chan uint64, 1)}
	require.NoError(d.t, r.WriteFrame(f))
	return r
}

func (r *remote) next() error {
	f, err := r.frames.Read()
	if err != nil {
		return err
	}
	switch f := f.(type) {
	case *protocol.Accepted:
		r.accepted = f
		r.acked.Stdout, r.acked.Stderr = f.Stdout, f.Stderr
	case *protocol.Refused:
		r.refused = f
	case *protocol.Data:
		if f.Stream == protocol.Stdout {
			r.stdout = append(r.stdout, f.Payload...)
		} else {
			r.stderr = append(r.stderr, f.Payload...)
		}
		r.ack()
	case *protocol.Ack:
		select {
		case <-r.taken:
		default:
		}
		r.taken <- f.Stdin
	case *protocol.StdinClosed:
		r.closed = true
	case *protocol.Exit:
		r.exit = f
	}
	return nil
}

func (r *remote) ack() {
	out, errs := r.frames.Offset(protocol.Stdout), r.frames.Offset(protocol.Stderr)
	if out+errs-r.acked.Stdout-r.acked.Stderr >= protocol.AckEvery {
		r.acked = protocol.Ack{Stdout: out, Stderr: errs}
		_ = r.WriteFrame(&r.acked)
	}
}

func (r *remote) until(f func() bool) {
	r.t.Helper()
	for !f() {
		require.NoError(r.t, r.next())
	}
}

// answer reads the first frame.
func (r *remote) answer() *remote {
	r.t.Helper()
	r.until(func() bool { return r.accepted != nil || r.refused != nil })
	return r
}

// wantRefused expects a refusal, and nothing after it.
func (r *remote) wantRefused(code protocol.Code) *protocol.Refused {
	r.t.Helper()
	r.answer()
	require.NotNil(r.t, r.refused, "it was accepted")
	require.Equal(r.t, code.String(), r.refused.Code.String())
	require.ErrorIs(r.t, r.next(), io.EOF)
	_ = r.stream.Close()
	return r.refused
}

// finish reads to the end and acknowledges it.
func (r *remote) finish() protocol.Exit {
	r.t.Helper()
	r.until(func() bool { return r.exit != nil || r.refused != nil })
	require.Nil(r.t, r.refused, "it was refused")
	require.NoError(r.t, r.WriteFrame(&protocol.ExitAck{}))
	require.ErrorIs(r.t, r.next(), io.EOF, "nothing follows the end")
	_ = r.stream.Close()
	return *r.exit
}

// input streams b within the window, and its end.
func (r *remote) input(b []byte) error {
	var sent, acked uint64
	for sent < uint64(len(b)) {
		for sent-acked >= protocol.MinWindow {
			select {
			case acked = <-r.taken:
			case <-time.After(patience):
				return fmt.Errorf("no acknowledgement")
			}
		}
		n := min(protocol.MaxData, len(b)-int(sent))
		if err := r.WriteFrame(&protocol.Data{Offset: sent, Payload: b[sent : int(sent)+n]}); err != nil {
			return err
		}
		sent += uint64(n)
	}
	return r.WriteFrame(&protocol.StdinEnd{Total: sent})
}

// raw sends bytes as they are and returns all that comes back.
func (d *dialer) raw(b []byte) []byte {
	d.t.Helper()
	s := d.stream(protocol.RunID)
	_, err := s.Write(b)
	require.NoError(d.t, err)
	var got bytes.Buffer
	_, _ = io.Copy(&got, s)
	_ = s.Close()
	return got.Bytes()
}

func eventually(t *testing.T, f func() bool) {
	t.Helper()
	require.Eventually(t, f, patience, 5*time.Millisecond)
}

func bytesReplace(s, old, with string) string { return strings.ReplaceAll(s, old, with) }

// revokeAll revokes everything that was issued before now.
func (w *world) revokeAll() {
	w.t.Helper()
	set, err := revocation.New(revocation.Entry{IssuedBefore: w.clock.now().Add(time.Minute), At: w.clock.now()})
	require.NoError(w.t, err)
	w.revoked.set.Store(set)
}

// lastCode reads what still comes, and returns the code of the Exit.
func (r *remote) lastCode() protocol.Code {
	r.t.Helper()
	r.until(func() bool { return r.exit != nil })
	_ = r.WriteFrame(&protocol.ExitAck{})
	return r.exit.Code
}

// cancel sends a cancel on a stream of its own and returns the reply.
func (w *world) cancel(d *dialer, s *protocol.Start, chain ...[]byte) protocol.ControlReply {
	w.t.Helper()
	c := d.stream(protocol.ControlID)
	require.NoError(w.t, protocol.WriteControlRequest(c, &protocol.CancelRequest{OperationKey: w.key(s), Lease: chain}))
	reply, err := protocol.ReadControlReply(c)
	require.NoError(w.t, err)
	_ = c.Close()
	return reply
}
