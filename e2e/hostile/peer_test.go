package hostile

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	core "github.com/libp2p/go-libp2p/core/protocol"
	"github.com/multiformats/go-multiaddr"
	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/gateway/door"
	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/protocol"
	"github.com/lendcli/lend/protocol/name"
)

// patience is for what must come; how soon is measured.
const patience = 60 * time.Second

type identity struct {
	priv crypto.PrivKey
	seed []byte
	id   name.PeerID
}

func newIdentity() identity {
	pub, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		panic(err)
	}
	return identity{must(crypto.UnmarshalEd25519PrivateKey(key)), key.Seed(), must(name.PeerIDFromKey(pub))}
}

// target is a gateway in a process of its own.
type target struct {
	t       *testing.T
	dir     string
	issuer  identity
	self    identity
	honest  identity
	hostile []identity
	addrs   []multiaddr.Multiaddr

	cmd   *exec.Cmd
	in    io.WriteCloser
	mu    sync.Mutex // guards the lines of the child, and what follows
	out   *bufio.Scanner
	hosts []host.Host
}

const policyText = `
policy: 1
issuers:
  owner: {id: ISSUER, connectors: any, holders: any}
peers: PEERS
limits: {on_disconnect: {keep: 2s}EXTRA}
allow:
  - name: all
    to: ["holders-of:owner"]
    connector: fx
    version: "1.0.0"
    commands: {print: {}, cat: {}, deaf: {}, sleep: {}, fail: {}}
`

// attack starts a gateway; limits go on those of its policy.
func attack(t *testing.T, limits string, hostile int) *target {
	t.Helper()
	g := &target{t: t, dir: t.TempDir(), issuer: newIdentity(), self: newIdentity(), honest: newIdentity()}
	peers := []string{"honest: " + g.honest.id.String()}
	for i := range hostile {
		g.hostile = append(g.hostile, newIdentity())
		peers = append(peers, fmt.Sprintf("hostile-%d: %s", i, g.hostile[i].id))
	}
	text := strings.NewReplacer("ISSUER", g.issuer.id.String(), "PEERS", "{"+strings.Join(peers, ", ")+"}", "EXTRA", limits).Replace(policyText)
	require.NoError(t, os.WriteFile(filepath.Join(g.dir, "policy.yaml"), []byte(text), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(g.dir, "key"), g.self.seed, 0o600))
	g.start()
	t.Cleanup(g.stop)
	return g
}

func (g *target) start() {
	g.t.Helper()
	exe, err := os.Executable()
	require.NoError(g.t, err)
	g.cmd = exec.Command(exe)
	g.cmd.Env = append(os.Environ(), childEnv+"="+g.dir)
	g.cmd.Stderr = os.Stderr
	g.in, err = g.cmd.StdinPipe()
	require.NoError(g.t, err)
	out, err := g.cmd.StdoutPipe()
	require.NoError(g.t, err)
	require.NoError(g.t, g.cmd.Start())
	g.out = bufio.NewScanner(out)
	var h hello
	g.line(&h)
	g.addrs = nil
	for _, a := range h.Addrs {
		g.addrs = append(g.addrs, must(multiaddr.NewMultiaddr(a)))
	}
}

func (g *target) line(v any) {
	g.t.Helper()
	require.True(g.t, g.out.Scan(), "the gateway has died")
	require.NoError(g.t, json.Unmarshal(g.out.Bytes(), v))
}

// stop ends the gateway, which must not take longer than its shutdown budget.
func (g *target) stop() {
	defer g.hangUp()
	begun := time.Now()
	_ = g.in.Close()
	done := make(chan error, 1)
	go func() { done <- g.cmd.Wait() }()
	select {
	case err := <-done:
		require.NoError(g.t, err, "it ended badly")
		g.t.Logf("shutdown took %v", time.Since(begun).Round(time.Millisecond))
	case <-time.After(30 * time.Second):
		_ = g.cmd.Process.Kill()
		g.t.Error("shutdown hangs")
	}
}

func (g *target) ask(what string) (s stats) {
	g.t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	_, err := fmt.Fprintln(g.in, what)
	require.NoError(g.t, err)
	g.line(&s)
	return s
}

func (g *target) stats() stats { g.t.Helper(); return g.ask("stats") }

// lease is a good one for holder, in an invocation of its own, edited.
func (g *target) lease(holder identity, edit ...func(*lease.Lease)) []byte {
	now := time.Now()
	l := lease.Lease{
		ID: lease.NewID(), Issuer: g.issuer.id, Holder: holder.id, Gateway: g.self.id,
		Invocation: must(name.ParseInvocationID("task")), Authority: lease.AuthorityOwner,
		IssuedAt: now, NotBefore: now, NotAfter: now.Add(10 * time.Minute),
		MaxOperations: 1_000_000, MaxConcurrent: 1024,
		Grants: []lease.Grant{{Connector: must(name.ParseConnectorKey("fx")), Version: must(name.ParseVersion("1.0.0"))}},
	}
	for _, c := range []string{"cat", "deaf", "fail", "print", "sleep"} {
		l.Grants[0].Commands = append(l.Grants[0].Commands, must(name.ParseCommand(c)))
	}
	for _, e := range edit {
		e(&l)
	}
	return must(lease.Seal(l, g.issuer.priv))
}

// dialer is one peer's host with connections to the gateway.
type dialer struct {
	host host.Host
	to   peer.ID
	who  identity
}

func (g *target) dial(who identity, transport string) (*dialer, error) {
	h, err := libp2p.New(libp2p.Identity(who.priv), libp2p.NoListenAddrs, libp2p.Muxer("/yamux/1.0.0", door.Muxer()),
		libp2p.ResourceManager(&network.NullResourceManager{}), libp2p.DisableMetrics(), libp2p.DisableRelay())
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	g.hosts = append(g.hosts, h)
	g.mu.Unlock()
	to := must(peer.Decode(g.self.id.String()))
	var addrs []multiaddr.Multiaddr
	for _, a := range g.addrs {
		if strings.Contains(a.String(), "/"+strings.Replace(transport, "quic", "quic-v1", 1)) {
			p2p, _ := peer.SplitAddr(a)
			addrs = append(addrs, p2p)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return &dialer{h, to, who}, h.Connect(ctx, peer.AddrInfo{ID: to, Addrs: addrs})
}

// hangUp closes all hosts.
func (g *target) hangUp() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, h := range g.hosts {
		_ = h.Close()
	}
	g.hosts = nil
}

func (g *target) mustDial(who identity, transport string) *dialer {
	g.t.Helper()
	d, err := g.dial(who, transport)
	require.NoError(g.t, err)
	return d
}

func (d *dialer) stream(ctx context.Context, id string) (network.Stream, error) {
	s, err := d.host.NewStream(ctx, d.to, core.ID(id))
	if err != nil {
		return nil, err
	}
	return s, s.SetDeadline(time.Now().Add(patience))
}

var operations atomic.Int64

func newOperation() name.OperationID {
	return must(name.ParseOperationID(fmt.Sprintf("operation-%08d", operations.Add(1))))
}

func start(l []byte, command string, args ...string) *protocol.Start {
	return &protocol.Start{
		Operation: newOperation(), Lease: [][]byte{l},
		Connector: must(name.ParseConnectorKey("fx")), Version: must(name.ParseVersion("1.0.0")),
		Command: must(name.ParseCommand(command)), Arguments: args, Stdin: command == "cat" || command == "deaf",
	}
}

// result is what a run came to.
type result struct {
	accepted *protocol.Accepted
	refused  *protocol.Refused
	exit     *protocol.Exit
	stdout   int
}

// run sends f and follows it to the end.
func (d *dialer) run(ctx context.Context, f protocol.Frame) (r result, err error) {
	s, err := d.stream(ctx, protocol.RunID)
	if err != nil {
		return r, err
	}
	defer func() { _ = s.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = s.Reset() })
	defer stop()
	w, frames := protocol.NewWriter(s), protocol.NewReader(s, protocol.Caller)
	if err := w.WriteFrame(f); err != nil {
		return r, err
	}
	for {
		f, err := frames.Read()
		if err != nil {
			return r, err
		}
		switch f := f.(type) {
		case *protocol.Accepted:
			r.accepted = f
		case *protocol.Refused:
			r.refused = f
			return r, nil
		case *protocol.Data:
			r.stdout += len(f.Payload)
			err = w.WriteFrame(&protocol.Ack{Stdout: frames.Offset(protocol.Stdout)})
		case *protocol.Exit:
			r.exit = f
			if err = w.WriteFrame(&protocol.ExitAck{}); err == nil {
				_, _ = frames.Read() // the gateway's end
			}
			return r, err
		}
		if err != nil {
			return r, err
		}
	}
}
