package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/multiformats/go-multiaddr"
	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/gateway/client"
	"github.com/lendcli/lend/gateway/early"
	"github.com/lendcli/lend/gateway/ledger"
	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/protocol"
	"github.com/lendcli/lend/protocol/name"
)

// client is the SDK of the agent, over one transport.
func (w *world) client(transport string, l []byte) *client.Client {
	w.t.Helper()
	var addrs []multiaddr.Multiaddr
	for _, a := range w.node.Addrs() {
		if strings.Contains(a.String(), "/"+strings.Replace(transport, "quic", "quic-v1", 1)) {
			addrs = append(addrs, a)
		}
	}
	c, err := client.New(client.Config{
		Key: w.agent.key, Addresses: addrs, Leases: client.Static(lease.File{Chain: [][]byte{l}}), Grease: 1,
	})
	require.NoError(w.t, err)
	w.t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestClientRuns(t *testing.T) {
	t.Parallel()
	for _, transport := range transports() {
		t.Run(transport, func(t *testing.T) {
			w := newWorld(t)
			c, ctx := w.client(transport, w.lease()), context.Background()
			for _, n := range []int{0, 1, 65536, 2 << 20} {
				out, err := c.Command(ctx, "fx", "print", fmt.Sprintf("--size=%d", n)).Output()
				require.NoError(t, err)
				require.True(t, bytes.Equal(pattern(n), out), "%d bytes", n)
			}
			cat := c.Command(ctx, "fx", "cat")
			cat.Stdin = bytes.NewReader(pattern(3 << 20))
			out, err := cat.Output()
			require.NoError(t, err)
			require.True(t, bytes.Equal(pattern(3<<20), out))

			var exit *client.ExitError
			require.ErrorAs(t, c.Command(ctx, "fx", "exit", "--code=3").Run(), &exit)
			require.Equal(t, 3, client.ExitStatus(exit))
			require.Equal(t, 128+11, client.ExitStatus(c.Command(ctx, "fx", "exit", "--code=999").Run()))
			require.Equal(t, 126, client.ExitStatus(c.Command(ctx, "fx", "print", "--nope").Run()))
		})
	}
}

func TestClientCancels(t *testing.T) {
	t.Parallel()
	for _, transport := range transports() {
		t.Run(transport, func(t *testing.T) {
			w := newWorld(t)
			c := w.client(transport, w.lease())
			ctx, cancel := context.WithCancel(context.Background())
			cmd := c.Command(ctx, "fx", "sleep")
			require.NoError(t, cmd.Start())
			eventually(t, func() bool { return w.host.Running.Load() == 1 })
			cancel()
			require.Equal(t, 130, client.ExitStatus(cmd.Wait()))
			eventually(t, func() bool { return w.host.Running.Load() == 0 })
		})
	}
}

func TestClientGoesOnWhereTheLinkBroke(t *testing.T) {
	t.Parallel()
	for _, transport := range transports() {
		t.Run(transport, func(t *testing.T) {
			w := newWorld(t)
			c := w.client(transport, w.lease())
			const size = 24 << 20
			cmd := c.Command(context.Background(), "fx", "print", fmt.Sprintf("--size=%d", size))
			out := &cutting{every: 4 << 20, cut: func() bool {
				peers := w.node.host.Network().Peers() // none while the client, which reads ahead, dials again
				for _, p := range peers {
					w.node.disconnect(p)
				}
				return len(peers) > 0
			}}
			cmd.Stdout = out
			require.NoError(t, cmd.Run())
			require.True(t, bytes.Equal(pattern(size), out.Bytes()))
			require.Equal(t, int64(1), w.host.Starts.Load())
			require.Positive(t, out.cuts)
		})
	}
}

// cutting cuts the link now and then, if there is one.
type cutting struct {
	bytes.Buffer
	every, cuts int
	cut         func() bool
}

func (c *cutting) Write(b []byte) (int, error) {
	n, err := c.Buffer.Write(b)
	if c.Len()/c.every > c.cuts && c.cut() {
		c.cuts++
	}
	return n, err
}

func TestClientWaitsForABusyGateway(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withPolicy(strings.Replace(basicPolicy, "allow:", "limits: {operations: 1, operations_per_peer: 1}\nallow:", 1)))
	d, l := w.dial(w.agent, "tcp"), w.lease()
	first := w.start(l, "sleep")
	r := d.run(first).answer()
	done := make(chan error, 1)
	go func() { done <- w.client("quic", l).Command(context.Background(), "fx", "exit", "--code=0").Run() }()
	eventually(t, func() bool { return w.node.door.Unread(d.host.ID()) == 0 && len(w.node.Status().Peers) == 1 })
	w.cancel(d, first)
	r.finish()
	require.NoError(t, <-done)
}

// TestCrash has a gateway go on with the ledger that another one left in the
// middle of an operation.
func TestCrash(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d, l := w.dial(w.agent, "tcp"), w.lease()
	s := w.start(l, "sleep")
	d.run(s).answer()
	ended := w.start(l, "print", "--size=4")
	d.run(ended).finish()
	eventually(t, func() bool { return len(w.node.Status().Operations) == 1 })

	left := filepath.Join(t.TempDir(), "ledger")
	require.NoError(t, os.CopyFS(left, os.DirFS(w.dir)))
	require.NoError(t, os.Chmod(left, 0o700))
	require.NoError(t, filepath.WalkDir(left, func(p string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			err = os.Chmod(p, 0o600)
		}
		return err
	}))
	again, err := ledger.Open(ledger.Config{Dir: left})
	require.NoError(t, err)
	require.Equal(t, 1, again.Recovery().Unknown)

	w2 := &world{
		t: t, gateway: w.gateway, issuer: w.issuer, agent: w.agent, host: w.host, clock: w.clock,
		revoked: w.revoked, ledger: again, policy: w.policy,
	}
	starts := w.host.Starts.Load()
	w2.serve(Config{
		Key: w.gateway.key, Runtime: w.host, Ledger: again, Revocations: w.revoked, Now: w.clock.now,
		Policy: w2.parse(w.policy), Listen: []multiaddr.Multiaddr{must(multiaddr.NewMultiaddr("/ip4/127.0.0.1/tcp/0"))},
	})
	t.Cleanup(func() { require.NoError(t, again.Close()) })
	d2 := w2.dial(w.agent, "tcp")
	d2.run(s).wantRefused(protocol.CodeOutcomeUnknown)
	d2.run(w2.attach(s, nil, 0)).wantRefused(protocol.CodeOutcomeUnknown)
	require.Equal(t, &protocol.CancelReply{State: protocol.OperationOutcomeUnknown}, w2.cancel(d2, s))
	require.Equal(t, uint64(4), d2.run(ended).finish().Stdout)
	require.Equal(t, starts, w.host.Starts.Load(), "nothing ran again")
	require.NoError(t, w2.node.Close())
}

func TestRevokedHolderGetsNoEnd(t *testing.T) {
	t.Parallel()
	for _, transport := range transports() {
		t.Run(transport, func(t *testing.T) {
			w := newWorld(t)
			d := w.dial(w.agent, transport)
			s := w.start(w.lease(), "print", "--size=4")
			d.run(s).finish()
			eventually(t, func() bool { return len(w.node.Status().Operations) == 0 })
			w.clock.advance(time.Hour)
			require.Equal(t, uint64(4), d.run(w.attach(s, nil, 0)).finish().Stdout, "an expired lease does not matter")
			d.run(s).wantRefused(protocol.CodeLeaseExpired)
			w.revokeAll()
			d.run(w.attach(s, nil, 0)).wantRefused(protocol.CodeLeaseRevoked)
		})
	}
}

func TestSecondInvocationFreezesForItself(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.dial(w.agent, "quic")
	narrow := w.parse(strings.ReplaceAll(basicPolicy, "print: {}, ", "print: {size: {maximum: 5}}, "))
	w.node.Reload(narrow)
	one := w.lease()
	d.run(w.start(one, "print", "--size=5")).finish()
	w.node.Reload(w.parse(basicPolicy))
	d.run(w.start(one, "print", "--size=6")).wantRefused(protocol.CodeArgumentRejected)
	two := w.lease(func(l *lease.Lease) { l.Invocation = must(name.ParseInvocationID("task-2")) })
	d.run(w.start(two, "print", "--size=6")).finish()
}

// A cancel that came before its start holds for the next gateway too.
func TestACancelBeforeItsStartOutlivesTheGateway(t *testing.T) {
	t.Parallel()
	path := t.TempDir() + "/cancels.json"
	var cfg Config
	w := newWorld(t, func(_ *world, c *Config) { c.Cancels = must(early.Open(path)); cfg = *c })
	d, l := w.dial(w.agent, "quic"), w.lease()
	s := w.start(l, "print", "--size=1")
	require.Equal(t, protocol.OperationNotStarted, w.cancel(d, s, l).(*protocol.CancelReply).State)
	require.NoError(t, w.node.Close())
	cfg.Cancels, cfg.Ledger = must(early.Open(path)), w.ledger
	w.serve(cfg)
	d = w.dial(w.agent, "tcp")
	d.run(s).wantRefused(protocol.CodeCancelled)
	require.Zero(t, w.host.Starts.Load())
	d.run(w.start(l, "print", "--size=1")).finish()
}

func TestRefuseSeesThroughWrapping(t *testing.T) {
	t.Parallel()
	for _, err := range []error{ledger.ErrFailed, ledger.ErrCorrupt, ledger.ErrLost} {
		require.Equal(t, protocol.CodeGatewayLocked, refuse(fmt.Errorf("x: %w", err)).Code)
	}
	require.Equal(t, protocol.CodeBusy, refuse(errors.Join(errors.New("x"), ledger.ErrFull)).Code)
	require.Equal(t, protocol.CodeProtocolViolation, refuse(&protocol.ViolationError{}).Code)
	require.Equal(t, protocol.CodeInternal, refuse(&panicError{"x"}).Code)
}
