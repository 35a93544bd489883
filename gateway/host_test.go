package gateway

import (
	"context"
	"crypto/ed25519"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/multiformats/go-multiaddr"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/gateway/door"
	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/protocol"
)

const strangersPolicy = `
policy: 1
issuers:
  owner: {id: ISSUER, connectors: any, holders: any}
allow:
  - name: all
    to: ["holders-of:owner"]
    connector: fx
    version: "1.0.0"
    commands: {print: {}, sleep: {}}
`

func TestUnnamedPeerIsDisconnectedWithoutAFrame(t *testing.T) {
	t.Parallel()
	for _, transport := range transports() {
		t.Run(transport, func(t *testing.T) {
			w := newWorld(t)
			d, err := w.tryDial(newIdentity(t), transport)
			if err == nil { // the client end may be told after it was built
				s, err := d.tryStream(protocol.RunID)
				if err == nil {
					_ = protocol.NewWriter(s).WriteFrame(w.start(w.lease(), "print"))
					b, err := io.ReadAll(s)
					require.Error(t, err)
					require.Empty(t, b)
				}
			}
			require.Empty(t, w.node.Status().Peers)
			require.Zero(t, w.host.Resolves.Load())
		})
	}
}

func TestStrangers(t *testing.T) {
	t.Parallel()
	for _, transport := range transports() {
		t.Run(transport, func(t *testing.T) {
			w := newWorld(t, withPolicy(strangersPolicy))
			w.node.door.Grace = 300 * time.Millisecond
			stranger := newIdentity(t)

			idle := w.dial(stranger, transport)
			eventually(t, func() bool { return len(w.node.Status().Peers) == 1 })
			eventually(t, func() bool { return len(w.node.Status().Peers) == 0 })
			require.NoError(t, idle.host.Close())

			d := w.dial(stranger, transport)
			mine := w.lease(func(l *lease.Lease) { l.Holder = stranger.id })
			d.run(w.start(w.lease(), "print")).wantRefused(protocol.CodeDenied)
			r := d.run(w.start(mine, "sleep")).answer()
			require.NotNil(t, r.accepted)
			later := time.NewTimer(2 * w.node.door.Grace)
			<-later.C
			require.Len(t, w.node.Status().Peers, 1, "a stranger that showed a lease may stay")
			require.Equal(t, &protocol.CancelReply{State: protocol.OperationRunning}, w.cancel(d, &protocol.Start{Operation: w.node.live.all()[0].key.Operation}))
			require.Equal(t, protocol.CodeCancelled, r.finish().Code)
		})
	}
}

func TestStrangersHaveASmallPool(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withPolicy(strangersPolicy))
	admitted := 0
	for range door.MaxStrangers + 4 {
		if _, err := w.tryDial(newIdentity(t), "tcp"); err == nil {
			admitted++
		}
	}
	eventually(t, func() bool { return len(w.node.Status().Peers) <= door.MaxStrangers })
	require.GreaterOrEqual(t, admitted, door.MaxStrangers)
}

func TestStreamsWithoutARequest(t *testing.T) {
	t.Parallel()
	for _, transport := range transports() {
		t.Run(transport, func(t *testing.T) {
			w := newWorld(t)
			d, l := w.dial(w.agent, transport), w.lease()
			start := encode(t, w.start(l, "print", "--size=1"))
			for range door.MaxUnread { // each trickles one byte
				s := d.stream(protocol.RunID)
				_, err := s.Write(start[:1])
				require.NoError(t, err)
			}
			eventually(t, func() bool {
				return w.node.door.Unread(d.host.ID()) == door.MaxUnread
			})
			s := d.stream(protocol.RunID)
			_, err := s.Write([]byte{1})
			require.NoError(t, err)
			f, err := protocol.NewReader(s, protocol.Caller).Read()
			require.NoError(t, err)
			require.Equal(t, protocol.CodeBusy, f.(*protocol.Refused).Code)
			require.Equal(t, uint64(1), w.refusals(protocol.CodeBusy, w.agent.id), "it is counted")
		})
	}
}

func TestIncompleteConfig(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for label, edit := range map[string]func(*Config){
		"no-key":     func(c *Config) { c.Key = nil },
		"short-key":  func(c *Config) { c.Key = ed25519.PrivateKey("short") },
		"no-runtime": func(c *Config) { c.Runtime = nil },
		"no-ledger":  func(c *Config) { c.Ledger = nil },
		"bad-address": func(c *Config) {
			c.Listen = []multiaddr.Multiaddr{must(multiaddr.NewMultiaddr("/ip4/192.0.2.1/tcp/1"))}
		},
	} {
		t.Run(label, func(t *testing.T) {
			c := Config{Key: w.gateway.key, Runtime: w.host, Ledger: w.ledger}
			edit(&c)
			_, err := New(c)
			require.Error(t, err)
		})
	}
}

func TestWithoutPolicyOrRevocationsNothingIsAllowed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(_ *world, c *Config) { c.Policy = nil })
	_, _ = w.tryDial(w.agent, "tcp")
	require.Empty(t, w.node.Status().Peers)

	w = newWorld(t, func(_ *world, c *Config) { c.Revocations = nil })
	w.dial(w.agent, "tcp").run(w.start(w.lease(), "print")).wantRefused(protocol.CodeLeaseRevoked)
}

func TestRunEndsWithItsContext(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.node.Run(ctx) }()
	cancel()
	require.NoError(t, <-done)
	require.NoError(t, w.node.Close(), "Close is idempotent")
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.Len(t, w.node.Addrs(), 2)
	for _, a := range w.node.Addrs() {
		require.True(t, strings.HasSuffix(a.String(), "/p2p/"+w.node.ID().String()), a.String())
	}
	announce := must(multiaddr.NewMultiaddr("/ip4/198.51.100.7/tcp/4001"))
	w = newWorld(t, func(_ *world, c *Config) { c.Announce = []multiaddr.Multiaddr{announce} })
	require.Len(t, w.node.Addrs(), 1)
}

func TestUnsupportedAndStatusRequests(t *testing.T) {
	t.Parallel()
	for _, transport := range transports() {
		t.Run(transport, func(t *testing.T) {
			w := newWorld(t)
			d, l := w.dial(w.agent, transport), w.lease()
			ask := func(q protocol.ControlRequest) protocol.ControlReply {
				s := d.stream(protocol.ControlID)
				require.NoError(t, protocol.WriteControlRequest(s, q))
				reply, err := protocol.ReadControlReply(s)
				require.NoError(t, err)
				_ = s.Close()
				return reply
			}
			require.Equal(t, protocol.CodeUnsupported, ask(&protocol.RevokeRequest{Envelope: []byte("x")}).(*protocol.Refused).Code)
			s := w.start(l, "print", "--size=9")
			require.Equal(t, protocol.CodeOperationUnknown, ask(&protocol.StatusRequest{OperationKey: w.key(s)}).(*protocol.Refused).Code)
			d.run(s).finish()
			eventually(t, func() bool { return len(w.node.Status().Operations) == 0 })
			status := ask(&protocol.StatusRequest{OperationKey: w.key(s)}).(*protocol.StatusReply)
			require.Equal(t, protocol.OperationEnded, status.State)
			require.Equal(t, uint64(9), status.Exit.Stdout)
			r := d.run(w.start(l, "sleep")).answer()
			running := &protocol.StatusRequest{OperationKey: w.key(&protocol.Start{Operation: w.node.live.all()[0].key.Operation})}
			require.Equal(t, protocol.OperationRunning, ask(running).(*protocol.StatusReply).State)
			_ = r.stream.Reset()
		})
	}
}

func TestCatalogue(t *testing.T) {
	t.Parallel()
	for _, transport := range transports() {
		t.Run(transport, func(t *testing.T) {
			w := newWorld(t)
			d := w.dial(w.agent, transport)
			ask := func(l []byte) ([]protocol.CatalogEntry, error) {
				s := d.stream(protocol.CatalogID)
				require.NoError(t, protocol.WriteCatalogRequest(s, &protocol.CatalogRequest{Lease: [][]byte{l}}))
				defer s.Close()
				return protocol.ReadCatalog(s)
			}
			l := w.lease()
			all, err := ask(l)
			require.NoError(t, err)
			require.Len(t, all, 7)
			require.Equal(t, "cat", all[0].Command.String())
			require.True(t, all[0].Stdin)
			require.Equal(t, "does cat", all[0].Summary)
			require.NotContains(t, string(all[0].InputSchema), "sha256")

			d.run(w.start(l, "print", "--size=1")).finish() // freezes
			w.node.Reload(w.parse(strings.ReplaceAll(basicPolicy, "print: {}, ", "print: {size: {maximum: 5}}, ")))
			narrowed, err := ask(l)
			require.NoError(t, err)
			require.Len(t, narrowed, 7)
			w.node.Reload(w.parse(strings.ReplaceAll(basicPolicy, "print: {}, ", "")))
			fewer, err := ask(l)
			require.NoError(t, err)
			require.Len(t, fewer, 6)

			var refused *protocol.Refusal
			_, err = ask([]byte("x"))
			require.ErrorAs(t, err, &refused)
			require.Equal(t, protocol.CodeDenied, refused.Code)
		})
	}
}

func TestLogsHoldNoArguments(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	w := newWorld(t, func(_ *world, c *Config) { c.Log = zerolog.New(zerolog.SyncWriter(&log)).Level(zerolog.TraceLevel) })
	d, l := w.dial(w.agent, "tcp"), w.lease()
	d.run(w.start(l, "print", "--size=canary-in-argv")).wantRefused(protocol.CodeArgumentRejected)
	d.run(w.start([]byte("canary-in-lease"), "print")).wantRefused(protocol.CodeDenied)
	r := d.run(w.start(l, "cat"))
	go func() { _ = r.input([]byte("canary-in-input")) }()
	r.finish()
	require.NoError(t, w.node.Close())
	require.NotContains(t, log.String(), "canary")
	require.Contains(t, log.String(), "operation ended")
}
