package client

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/connmgr"
	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/multiformats/go-multiaddr"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/protocol"
	"github.com/lendcli/lend/protocol/name"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/libp2p/go-libp2p/p2p/host/autonat.(*AutoNAT).background"),
		goleak.IgnoreAnyFunction("github.com/libp2p/go-flow-metrics.(*sweeper).run"),
		goleak.IgnoreAnyFunction("github.com/libp2p/go-libp2p/p2p/transport/quicreuse.(*reuse).gc"),
	)
}

const (
	overTCP  = "/ip4/127.0.0.1/tcp/0"
	overQUIC = "/ip4/127.0.0.1/udp/0/quic-v1"
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func peerName(h host.Host) name.PeerID { return must(name.ParsePeerID(h.ID().String())) }

// fake is a scripted gateway on a real host.
type fake struct {
	host host.Host

	mu      sync.Mutex // guards all below
	script  []func(*served)
	starts  []*protocol.Start
	control func(protocol.ControlRequest) protocol.ControlReply
	asked   []protocol.ControlRequest
	wg      sync.WaitGroup
}

// served is one run stream at the gateway.
type served struct {
	network.Stream
	*protocol.Reader
	w     *protocol.Writer
	first protocol.Frame
}

func newFake(listen string, options ...libp2p.Option) *fake {
	options = append([]libp2p.Option{
		libp2p.ListenAddrStrings(listen), libp2p.DisableRelay(), libp2p.DisableIdentifyAddressDiscovery(),
		libp2p.DisableMetrics(), libp2p.ConnectionManager(connmgr.NullConnMgr{}),
		libp2p.ResourceManager(&network.NullResourceManager{}),
	}, options...)
	f := &fake{host: must(libp2p.New(options...))}
	f.host.SetStreamHandler(protocol.RunID, func(s network.Stream) { f.wg.Go(func() { f.run(s) }) })
	f.host.SetStreamHandler(protocol.ControlID, func(s network.Stream) { f.wg.Go(func() { f.serveControl(s) }) })
	return f
}

func (f *fake) close() {
	_ = f.host.Close()
	f.wg.Wait()
}

// run serves the next stream with the next function of the script.
func (f *fake) run(s network.Stream) {
	_ = s.SetDeadline(time.Now().Add(2 * time.Minute))
	v := &served{Stream: s, Reader: protocol.NewReader(s, protocol.Gateway), w: protocol.NewWriter(s)}
	var err error
	if v.first, err = v.Reader.Read(); err != nil {
		_ = s.Reset()
		return
	}
	f.mu.Lock()
	if st, ok := v.first.(*protocol.Start); ok {
		f.starts = append(f.starts, st)
	}
	var do func(*served)
	if len(f.script) > 0 {
		do, f.script = f.script[0], f.script[1:]
	}
	f.mu.Unlock()
	if do == nil {
		_ = s.Reset()
		return
	}
	do(v)
}

// questions are the control requests so far.
func (f *fake) questions() []protocol.ControlRequest {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.asked)
}

func (f *fake) serveControl(s network.Stream) {
	q, err := protocol.ReadControlRequest(s)
	if err != nil {
		_ = s.Reset()
		return
	}
	f.mu.Lock()
	f.asked = append(f.asked, q)
	do := f.control
	f.mu.Unlock()
	if do == nil {
		_ = s.Reset()
		return
	}
	_ = protocol.WriteControlReply(s, do(q))
	_ = s.Close()
}

// then sets what the next streams do.
func (f *fake) then(do ...func(*served)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.script = append(f.script, do...)
}

func (f *fake) onControl(do func(protocol.ControlRequest) protocol.ControlReply) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.control = do
}

func (f *fake) seen() []*protocol.Start {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.starts
}

// send writes frames; a lost link, or one that is too slow, ends the script by
// returning false, and the stream with it.
func (v *served) send(frames ...protocol.Frame) bool {
	for _, f := range frames {
		if v.w.WriteFrame(f) != nil {
			_ = v.Reset()
			return false
		}
	}
	return true
}

func acceptedFrame() *protocol.Accepted {
	return &protocol.Accepted{
		Token: []byte("0123456789abcdef"),
		Limits: protocol.Limits{
			Stdin: protocol.NoLimit, Stdout: protocol.NoLimit, Stderr: protocol.NoLimit, Detached: 5 * time.Second,
		},
	}
}

// acked reads until ExitAck and the caller's end, and returns the other frames.
func (v *served) acked() (frames []protocol.Frame, ok bool) {
	for {
		f, err := v.Reader.Read()
		if errors.Is(err, io.EOF) {
			_ = v.Close()
			return frames, ok
		}
		if err != nil {
			_ = v.Reset()
			return frames, false
		}
		if _, last := f.(*protocol.ExitAck); last {
			ok = true
			continue
		}
		frames = append(frames, f)
	}
}

// exits is a script: accepted, then frames, then the caller's ExitAck.
func exits(frames ...protocol.Frame) func(*served) {
	return func(v *served) {
		if v.send(acceptedFrame()) && v.send(frames...) {
			v.acked()
		}
	}
}

func refuses(code protocol.Code, after time.Duration) func(*served) {
	return func(v *served) {
		v.send((&protocol.Refusal{Code: code, RetryAfter: after}).Frame())
		_ = v.CloseWrite()
		_, _ = io.Copy(io.Discard, v.Stream)
		_ = v.Close()
	}
}

func resets(v *served) { _ = v.Reset() }

// hangsUp ends the stream without an end of the operation; what was sent arrives.
func hangsUp(v *served) {
	_ = v.CloseWrite()
	_, _ = io.Copy(io.Discard, v.Stream)
	_ = v.Close()
}

func stdout(offset uint64, s string) *protocol.Data {
	return &protocol.Data{Stream: protocol.Stdout, Offset: offset, Payload: []byte(s)}
}

// fixture is a client with a lease for a fake gateway.
type fixture struct {
	*fake
	key    ed25519.PrivateKey
	issuer crypto.PrivKey
	lease  lease.Lease
	config Config
}

func newFixture(listen string, options ...libp2p.Option) *fixture {
	f := &fixture{fake: newFake(listen, options...)}
	_, f.key, _ = ed25519.GenerateKey(rand.Reader)
	issuer, _, _ := crypto.GenerateEd25519Key(rand.Reader)
	f.issuer = issuer
	now := time.Now()
	f.lease = lease.Lease{
		ID:         lease.NewID(),
		Issuer:     must(name.PeerIDFromKey(must(issuer.GetPublic().Raw()))),
		Holder:     must(name.PeerIDFromKey(f.key.Public().(ed25519.PublicKey))),
		Gateway:    peerName(f.host),
		Invocation: must(name.ParseInvocationID("invocation-1")),
		Authority:  lease.AuthorityOwner,
		Grants: []lease.Grant{
			{Connector: key("github"), Version: version("2.40.1"), Commands: []name.Command{must(name.ParseCommand("issue.list"))}},
			{Connector: key("two"), Version: version("1"), Commands: []name.Command{must(name.ParseCommand("a"))}},
			{Connector: key("two"), Version: version("2"), Commands: []name.Command{must(name.ParseCommand("a"))}},
		},
		IssuedAt: now, NotBefore: now, NotAfter: now.Add(10 * time.Minute),
		MaxOperations: 100, MaxConcurrent: 10, Purpose: "test",
	}
	f.config = Config{Key: f.key, Grease: 1, Leases: func(context.Context) (lease.File, error) {
		b, err := lease.Seal(f.lease, f.issuer)
		return lease.File{Chain: [][]byte{b}}, err
	}}
	f.config.Addresses = f.host.Addrs()
	return f
}

func key(s string) name.ConnectorKey { return must(name.ParseConnectorKey(s)) }

func version(s string) name.Version { return must(name.ParseVersion(s)) }

// dial returns the client; the test closes both in order.
func (f *fixture) dial(tb testing.TB) *Client {
	tb.Helper()
	c, err := New(f.config)
	require.NoError(tb, err)
	tb.Cleanup(func() {
		require.NoError(tb, c.Close())
		f.close()
	})
	return c
}

// each runs a test over both transports.
func each(t *testing.T, do func(t *testing.T, f *fixture)) {
	t.Helper()
	for transport, listen := range map[string]string{"tcp": overTCP, "quic": overQUIC} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			do(t, newFixture(listen))
		})
	}
}

func addr(s string) multiaddr.Multiaddr { return must(multiaddr.NewMultiaddr(s)) }

func cryptoKey(k ed25519.PrivateKey) (crypto.PrivKey, error) {
	return crypto.UnmarshalEd25519PrivateKey(k)
}
