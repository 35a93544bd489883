//go:build linux

package socket

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/connmgr"
	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/lendcli/lend/gateway/client/broker"
	"github.com/lendcli/lend/gateway/client/broker/wire"
	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/protocol"
	"github.com/lendcli/lend/protocol/name"
)

const patience = 30 * time.Second

func TestMain(m *testing.M) {
	if path := os.Getenv("TEST_CONNECT"); path != "" {
		os.Exit(stranger(path))
	}
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/libp2p/go-libp2p/p2p/host/autonat.(*AutoNAT).background"),
		goleak.IgnoreAnyFunction("github.com/libp2p/go-flow-metrics.(*sweeper).run"),
		goleak.IgnoreAnyFunction("github.com/libp2p/go-libp2p/p2p/transport/quicreuse.(*reuse).gc"),
	)
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// fake is a gateway that runs a few commands by itself.
type fake struct {
	host   host.Host
	issuer crypto.PrivKey

	mu      sync.Mutex // guards what follows
	starts  int
	cancels map[string]chan struct{}
}

func newFake(t *testing.T, listen ...string) *fake {
	t.Helper()
	issuer, _, err := crypto.GenerateEd25519Key(rand.Reader)
	require.NoError(t, err)
	f := &fake{issuer: issuer, cancels: map[string]chan struct{}{}}
	f.host, err = libp2p.New(
		libp2p.ListenAddrStrings(listen...), libp2p.DisableRelay(), libp2p.DisableIdentifyAddressDiscovery(),
		libp2p.DisableMetrics(), libp2p.ConnectionManager(connmgr.NullConnMgr{}), libp2p.ResourceManager(&network.NullResourceManager{}),
	)
	require.NoError(t, err)
	var wg sync.WaitGroup
	serve := func(do func(network.Stream) bool) network.StreamHandler {
		return func(s network.Stream) {
			wg.Go(func() {
				_ = s.SetDeadline(time.Now().Add(patience))
				if !do(s) {
					_ = s.Reset()
				}
			})
		}
	}
	f.host.SetStreamHandler(protocol.RunID, serve(f.run))
	f.host.SetStreamHandler(protocol.ControlID, serve(f.control))
	f.host.SetStreamHandler(protocol.CatalogID, serve(f.catalog))
	t.Cleanup(func() {
		require.NoError(t, f.host.Close())
		wg.Wait()
	})
	return f
}

func (f *fake) started() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.starts
}

func (f *fake) stopped(op string) chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.cancels[op] == nil {
		f.cancels[op] = make(chan struct{}, 8)
	}
	return f.cancels[op]
}

func (f *fake) run(s network.Stream) bool {
	r, w := protocol.NewReader(s, protocol.Gateway), protocol.NewWriter(s)
	first, err := r.Read()
	start, ok := first.(*protocol.Start)
	if err != nil || !ok {
		return false
	}
	f.mu.Lock()
	f.starts++
	f.mu.Unlock()
	limits := protocol.Limits{Stdin: protocol.NoLimit, Stdout: protocol.NoLimit, Stderr: protocol.NoLimit, Detached: 50 * time.Millisecond}
	if w.WriteFrame(&protocol.Accepted{Token: []byte("0123456789abcdef"), Limits: limits}) != nil {
		return false
	}
	out, exit := "", &protocol.Exit{}
	switch start.Command.String() {
	case "echo":
		out = strings.Join(start.Arguments, " ")
	case "fail":
		exit.Status = 7
	case "vanish":
		return false
	case "wait":
		select {
		case <-f.stopped(start.Operation.String()):
		case <-time.After(patience):
			return false
		}
		exit.Code, exit.Signal = protocol.CodeCancelled, "SIGTERM"
	case "cat":
		for {
			next, err := r.Read()
			if err != nil {
				return false
			}
			if d, ok := next.(*protocol.Data); ok {
				out += string(d.Payload)
			}
			if _, ok := next.(*protocol.StdinEnd); ok {
				break
			}
		}
	}
	exit.Stdout = uint64(len(out))
	const most = 65480 // of one frame
	for at := 0; at < len(out); at += most {
		piece := out[at:min(at+most, len(out))]
		if w.WriteFrame(&protocol.Data{Stream: protocol.Stdout, Offset: uint64(at), Payload: []byte(piece)}) != nil {
			return false
		}
	}
	if w.WriteFrame(exit) != nil {
		return false
	}
	for {
		if _, err := r.Read(); err != nil {
			_ = s.Close()
			return errors.Is(err, io.EOF)
		}
	}
}

func (f *fake) control(s network.Stream) bool {
	q, err := protocol.ReadControlRequest(s)
	c, ok := q.(*protocol.CancelRequest)
	if err != nil || !ok {
		return false
	}
	f.stopped(c.Operation.String()) <- struct{}{}
	err = protocol.WriteControlReply(s, &protocol.CancelReply{State: protocol.OperationRunning})
	_ = s.Close()
	return err == nil
}

// commands are what the fake lends, with their fixed arguments.
func commands() map[string]string {
	return map[string]string{"echo": `["say"]`, "fail": `["fail","now"]`, "vanish": `["vanish"]`, "wait": `["wait"]`, "cat": `["cat"]`, "loud": `["say","loud"]`}
}

func (f *fake) catalog(s network.Stream) bool {
	q, err := protocol.ReadCatalogRequest(s)
	if err != nil {
		return false
	}
	l, err := lease.Open(q.Lease)
	if err != nil {
		return false
	}
	var entries []protocol.CatalogEntry
	for _, g := range l.Grants {
		for _, c := range g.Commands {
			schema := `{"x-lend-arguments":` + commands()[c.String()] + `}`
			if strings.HasPrefix(c.String(), "big") {
				schema = `{"description":"` + strings.Repeat("<", 60_000) + `"}`
			}
			entries = append(entries, protocol.CatalogEntry{
				Connector: g.Connector, Version: g.Version, Command: c, Stdin: c.String() == "cat",
				InputSchema: json.RawMessage(schema),
				Limits:      protocol.Limits{Stdin: protocol.NoLimit, Stdout: protocol.NoLimit, Stderr: protocol.NoLimit},
			})
		}
	}
	err = protocol.WriteCatalog(s, entries)
	_ = s.Close()
	return err == nil
}

// lend makes a lease of the fake for a broker.
func (f *fake) lend(b *broker.Broker, invocation, connector string, life time.Duration, granted ...string) lease.File {
	if len(granted) == 0 {
		granted = []string{"cat", "echo", "fail", "vanish", "wait"}
	}
	g := lease.Grant{Connector: must(name.ParseConnectorKey(connector)), Version: must(name.ParseVersion("1"))}
	for _, c := range granted {
		g.Commands = append(g.Commands, must(name.ParseCommand(c)))
	}
	now := time.Now().Truncate(time.Millisecond)
	sealed := must(lease.Seal(lease.Lease{
		ID: lease.NewID(), Issuer: must(name.PeerIDFromKey(must(f.issuer.GetPublic().Raw()))), Holder: b.Holder(),
		Gateway: must(name.ParsePeerID(f.host.ID().String())), Invocation: must(name.ParseInvocationID(invocation)),
		Authority: lease.AuthorityOwner, Grants: []lease.Grant{g}, IssuedAt: now, NotBefore: now, NotAfter: now.Add(life),
		MaxOperations: 1000, MaxConcurrent: 16,
	}, f.issuer))
	file := lease.File{Chain: [][]byte{sealed}}
	for _, a := range f.host.Addrs() {
		file.Addresses = append(file.Addresses, a.String()+"/p2p/"+f.host.ID().String())
	}
	return file
}

// place is a broker behind its socket.
type place struct {
	t      *testing.T
	broker *broker.Broker
	server *Server
	path   string
}

func newPlace(t *testing.T, change ...func(*broker.Config)) *place {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	config := broker.Config{Key: key, Wait: -1, Shims: func(as string) (name.ConnectorKey, error) { return name.ParseConnectorKey(as) }}
	for _, c := range change {
		c(&config)
	}
	p := &place{t: t, path: filepath.Join(shortDir(t), "b")}
	p.broker, err = broker.New(config)
	require.NoError(t, err)
	p.server, err = Listen(t.Context(), p.path, p.broker, zerolog.Nop())
	require.NoError(t, err)
	t.Cleanup(p.close)
	return p
}

func (p *place) close() {
	require.NoError(p.t, p.server.Close())
	require.NoError(p.t, p.broker.Close())
	require.NoFileExists(p.t, p.path)
}

// shortDir is private, and short enough for a socket.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "b") //nolint:usetesting // t.TempDir is too long for a socket
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// called is a call that a shim would make.
type called struct {
	conn           *net.UnixConn
	stdin          *os.File
	stdout, stderr *os.File
}

func (p *place) dial() *net.UnixConn {
	p.t.Helper()
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: p.path, Net: "unix"})
	require.NoError(p.t, err)
	require.NoError(p.t, c.SetDeadline(time.Now().Add(patience)))
	return c
}

func (p *place) call(said wire.Call) *called {
	p.t.Helper()
	return p.callTo(said, nil)
}

// callTo is a call whose output goes to a file, which it closes.
func (p *place) callTo(said wire.Call, to *os.File) *called {
	p.t.Helper()
	inR, in, err := os.Pipe()
	require.NoError(p.t, err)
	out, outW, err := os.Pipe()
	require.NoError(p.t, err)
	errs, errW, err := os.Pipe()
	require.NoError(p.t, err)
	if to != nil {
		require.NoError(p.t, outW.Close())
		outW = to
	}
	c := &called{p.dial(), in, out, errs}
	p.t.Cleanup(func() { _, _, _, _ = c.conn.Close(), in.Close(), out.Close(), errs.Close() })
	payload, err := said.Append(nil)
	require.NoError(p.t, err)
	require.NoError(p.t, writeFirst(c.conn, wire.Header(wire.KindCall, len(payload)), [3]*os.File{inR, outW, errW}))
	for _, f := range []*os.File{inR, outW, errW} {
		require.NoError(p.t, f.Close())
	}
	_, err = c.conn.Write(payload)
	require.NoError(p.t, err)
	return c
}

func (c *called) cancel(t *testing.T) {
	t.Helper()
	_, err := c.conn.Write(wire.Header(wire.KindCancel, 0))
	require.NoError(t, err)
}

// wait returns the output and the end.
func (c *called) wait(t *testing.T) (string, wire.Exit) {
	t.Helper()
	out, err := io.ReadAll(c.stdout)
	require.NoError(t, err)
	data, err := readFrame(c.conn, wire.KindExit)
	require.NoError(t, err)
	e, err := wire.ParseExit(data)
	require.NoError(t, err)
	return string(out), e
}

// try makes one call of a shim named fx.
func (p *place) try(session string, args ...string) (string, wire.Exit) {
	p.t.Helper()
	return p.call(wire.Call{Session: session, Name: "fx", Args: args}).wait(p.t)
}

// each runs a test over both transports.
func each(t *testing.T, do func(t *testing.T, f *fake)) {
	t.Helper()
	for transport, listen := range map[string]string{"tcp": "/ip4/127.0.0.1/tcp/0", "quic": "/ip4/127.0.0.1/udp/0/quic-v1"} {
		t.Run(transport, func(t *testing.T) { do(t, newFake(t, listen)) })
	}
}

// stranger is a process of another user: it asks, and says what it heard.
func stranger(path string) int {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return 1
	}
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		return 2
	}
	q := []byte(`{"do":"status"}`)
	_, _ = unix.Write(fd, append(wire.Header(wire.KindControl, len(q)), q...))
	if n, err := unix.Read(fd, make([]byte, 64)); err != nil || n <= 0 {
		return 3 // not a word
	}
	return 0
}

// own is a Local for tests.
type own struct {
	mu   sync.Mutex
	runs int
}

func (o *own) Catalog(_ context.Context, key name.ConnectorKey) ([]protocol.CatalogEntry, error) {
	if key.String() != "fx" {
		return nil, nil
	}
	return []protocol.CatalogEntry{{
		Connector: key, Version: must(name.ParseVersion("1")), Command: must(name.ParseCommand("echo")),
		InputSchema: json.RawMessage(`{"allOf":[{"x-lend-arguments":["say"]},{"x-lend-arguments":["say"]}]}`),
	}}, nil
}

func (o *own) Run(_ context.Context, _ protocol.CatalogEntry, args []string, s broker.Streams) error {
	o.mu.Lock()
	o.runs++
	o.mu.Unlock()
	_, err := io.WriteString(s.Stdout, "own "+strings.Join(args, " "))
	return err
}
