package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/connmgr"
	"github.com/libp2p/go-libp2p/core/control"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/p2p/muxer/yamux"
	"github.com/multiformats/go-multiaddr"
	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/gateway/client/internal/dial"
	"github.com/lendcli/lend/gateway/door"
	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/protocol"
	"github.com/lendcli/lend/protocol/name"
)

func TestRefusals(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) { //nolint:thelper // the test itself
		c := f.dial(t)
		for _, tc := range []struct {
			code   protocol.Code
			status int
		}{
			{protocol.CodeDenied, 126},
			{protocol.CodeArgumentRejected, 126},
			{protocol.CodeCommandUnknown, 127},
			{protocol.CodeCancelled, 130},
			{9999, 126},
		} {
			f.then(refuses(tc.code, 0))
			cmd := list(c)
			cmd.Stdin = strings.NewReader("early input that nobody takes")
			err := cmd.Start()
			var refused *RefusedError
			require.ErrorAs(t, err, &refused)
			require.Equal(t, tc.code, refused.Code)
			require.Equal(t, tc.status, ExitStatus(err))
			require.Error(t, cmd.Wait())
		}
	})
}

// spec: CODE-2, START-6
func TestBusyIsWaitedFor(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) { //nolint:thelper // the test itself
		c := f.dial(t)
		f.then(refuses(protocol.CodeBusy, time.Millisecond), refuses(protocol.CodeRateLimited, 0), echo)
		cmd := list(c)
		cmd.Stdin = strings.NewReader("input")
		out, err := cmd.Output()
		require.NoError(t, err)
		require.Equal(t, "input", string(out))
		starts := f.seen()
		require.Len(t, starts, 3)
		require.Equal(t, starts[0].Operation, starts[2].Operation)
	})
}

func TestBusyForTooLong(t *testing.T) {
	f := newFixture(overTCP)
	f.config.Wait = 50 * time.Millisecond
	c := f.dial(t)
	f.then(refuses(protocol.CodeBusy, time.Hour))
	err := list(c).Run()
	var refused *RefusedError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, protocol.CodeBusy, refused.Code)
	require.Equal(t, 75, ExitStatus(err))

	f.then(refuses(9999, time.Hour)) // not known, but with a hint
	err = list(c).Run()
	require.Equal(t, 75, ExitStatus(err))
}

func TestNothingIsSentThatCannotWork(t *testing.T) {
	f := newFixture(overTCP)
	c := f.dial(t)
	ctx := context.Background()
	lease0 := f.lease
	for _, tc := range []struct {
		name   string
		change func(*lease.Lease)
		cmd    *Cmd
		status int
		text   string
	}{
		{"other-holder", func(l *lease.Lease) { l.Holder = l.Issuer }, list(c), 125, "use lease"},
		{"expired", func(l *lease.Lease) {
			l.IssuedAt, l.NotBefore, l.NotAfter = l.IssuedAt.Add(-time.Hour), l.NotBefore.Add(-time.Hour), l.NotAfter.Add(-time.Hour)
		}, list(c), 125, "use lease"},
		{"no-connector", nil, c.Command(ctx, "gitlab", "a"), 127, "CONNECTOR_UNKNOWN"},
		{"no-command", nil, c.Command(ctx, "github", "pr.list"), 127, "COMMAND_UNKNOWN"},
		{"no-version", nil, &Cmd{Connector: "github", Name: "issue.list", Version: "3", ctx: ctx, client: c}, 127, "VERSION_UNKNOWN"},
		{"two-versions", nil, c.Command(ctx, "two", "a"), 125, "choose one"},
		{"bad-key", nil, c.Command(ctx, "GitHub", "a"), 125, "connector key"},
		{"bad-command", nil, c.Command(ctx, "github", ""), 125, "command"},
		{"bad-version", nil, &Cmd{Connector: "github", Name: "a", Version: "/", ctx: ctx, client: c}, 125, "version"},
		{"bad-operation", nil, &Cmd{Connector: "github", Name: "a", OperationID: "1", ctx: ctx, client: c}, 125, "operation ID"},
		{"too-many-arguments", nil, list(c, make([]string, 257)...), 126, "ARGUMENT_REJECTED"},
		{"too-long-argument", nil, list(c, strings.Repeat("a", 131072)), 126, "ARGUMENT_REJECTED"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f.lease = lease0
			if tc.change != nil {
				tc.change(&f.lease)
			}
			err := tc.cmd.Run()
			require.ErrorContains(t, err, tc.text)
			require.Equal(t, tc.status, ExitStatus(err))
			var ours *lease.Error
			require.Equal(t, tc.text == "use lease", tc.status == 125 && errors.As(err, &ours), "the holder's own look has a type")
			require.Equal(t, tc.name == "two-versions", errors.Is(err, ErrVersions))
		})
	}
	f.lease = lease0
	require.Empty(t, c.dialer.Host.Network().Conns(), "nobody was dialled")

	f.then(exits(&protocol.Exit{}))
	cmd := c.Command(ctx, "two", "a")
	cmd.Version = "2"
	require.NoError(t, cmd.Run())
	require.Equal(t, "2", f.seen()[0].Version.String())
}

func TestNoLink(t *testing.T) {
	f := newFixture(overTCP)
	good := f.config.Addresses[0]
	f.config.Addresses = nil
	file := must(f.config.Leases(context.Background()))
	f.config.Leases = func(context.Context) (lease.File, error) { return file, nil }
	c := f.dial(t)
	err := list(c).Run()
	require.ErrorIs(t, err, ErrNoAddress)
	require.NotErrorIs(t, err, ErrUnreachable, "it never can")
	require.Equal(t, 125, ExitStatus(err))

	file.Addresses = []string{"/ip4/127.0.0.1/tcp/1"}
	err = list(c).Run()
	require.ErrorContains(t, err, "connect to gateway: /ip4/127.0.0.1/tcp/1: ")
	require.NotContains(t, err.Error(), "\n")
	require.ErrorIs(t, err, ErrUnreachable)
	require.Equal(t, 125, ExitStatus(err))

	file.Addresses[0] = good.String() + "/p2p/12D3KooWPjceQrSwdWXPyLLeABRXmuqt69Rg3sBYbU1Nft9HyQ6X"
	require.ErrorContains(t, list(c).Run(), "another gateway")

	file.Addresses[0] = good.String() // no back-off after a failure
	f.then(exits(&protocol.Exit{}))
	require.NoError(t, list(c).Run())
}

// Where the gateway is is made out once for the addresses of a lease, and anew for others.
func TestPlaceIsMadeOnce(t *testing.T) {
	f := newFixture(overTCP)
	file := must(f.config.Leases(context.Background()))
	file.Addresses = []string{f.config.Addresses[0].String() + "/p2p/" + f.host.ID().String()}
	f.config.Leases = func(context.Context) (lease.File, error) { return file, nil }
	c := f.dial(t)
	placed := func() *place {
		f.then(exits(&protocol.Exit{}))
		require.NoError(t, list(c).Run())
		return c.place.Load()
	}
	first := placed()
	require.Equal(t, f.host.ID(), first.info.ID)
	require.Len(t, first.info.Addrs, 2, "those of Config too")
	for range 3 {
		require.Same(t, first, placed())
	}
	file.Addresses = slices.Clone(file.Addresses)
	require.Same(t, first, placed(), "the same addresses")
	file.Addresses[0] = "/ip4/127.0.0.2/tcp/1"
	second := placed()
	require.NotSame(t, first, second)
	require.Equal(t, file.Addresses[0], second.info.Addrs[1].String())

	file.Addresses[0] = "nonsense" // written into the very slice
	require.ErrorContains(t, list(c).Run(), "read address")
	require.Same(t, second, c.place.Load(), "an error is not remembered")

	other := f.lease
	other.Gateway = f.lease.Issuer
	file.Addresses[0] = "/ip4/127.0.0.2/tcp/1"
	file.Chain = [][]byte{must(lease.Seal(other, f.issuer))}
	_, to, err := c.lease(t.Context())
	require.NoError(t, err)
	require.Equal(t, other.Gateway.String(), to.ID.String(), "of another gateway")
}

func TestAddressesOfTheLeaseFile(t *testing.T) {
	f := newFixture(overTCP)
	file := must(f.config.Leases(context.Background()))
	file.Addresses = []string{f.config.Addresses[0].String() + "/p2p/" + f.host.ID().String()}
	f.config.Addresses, f.config.Leases = nil, Static(file)
	c := f.dial(t)
	require.NoError(t, c.Dial(context.Background()))
	require.NoError(t, c.Dial(context.Background()), "again")
	f.then(exits(&protocol.Exit{}))
	require.NoError(t, list(c).Run())
	require.Equal(t, f.lease.Holder, c.Holder())

	broken := errors.New("vault is sealed")
	c.config.Leases = func(context.Context) (lease.File, error) { return lease.File{}, broken }
	require.ErrorIs(t, list(c).Run(), broken)
	c.config.Leases = Static(lease.File{Chain: [][]byte{[]byte("x")}})
	require.ErrorContains(t, list(c).Run(), "open lease")
	file.Addresses = []string{"nonsense"}
	c.config.Leases = Static(file)
	require.ErrorContains(t, list(c).Run(), "read address")
}

// shut admits nobody, and says so as gateways do.
type shut struct{ connmgr.ConnectionGater }

func (shut) InterceptPeerDial(peer.ID) bool                      { return true }
func (shut) InterceptAddrDial(peer.ID, multiaddr.Multiaddr) bool { return true }
func (shut) InterceptAccept(network.ConnMultiaddrs) bool         { return true }
func (shut) InterceptUpgraded(network.Conn) (bool, control.DisconnectReason) {
	return false, 0
}

func (shut) InterceptSecured(network.Direction, peer.ID, network.ConnMultiaddrs) bool { return true }

// rude hangs up without a word, on TCP.
type rude struct{ shut }

func (rude) InterceptSecured(network.Direction, peer.ID, network.ConnMultiaddrs) bool { return false }

func TestNotAdmittedIsNotUnknown(t *testing.T) {
	for transport, listen := range map[string]string{"tcp": overTCP, "quic": overQUIC} {
		t.Run(transport, func(t *testing.T) {
			f := newFixture(listen, libp2p.ConnectionGater(shut{}), libp2p.Muxer(yamux.ID, door.Muxer()))
			c := f.dial(t)
			for range 20 { // whatever came first: the stream, the request or the answer
				began := time.Now()
				err := list(c).Run()
				require.ErrorIs(t, err, ErrNotAdmitted)
				require.ErrorIs(t, err, ErrUnreachable)
				require.Equal(t, 125, ExitStatus(err), "%v", err)
				require.Less(t, time.Since(began), 5*time.Second, "it is believed at once")
			}
			require.Empty(t, f.seen())
		})
	}
}

// A request that was sent on a new link may have been read, if the other end only hangs
// up: never is it told that nothing ran.
func TestHungUpOnAtTheFirstWordIsUnknown(t *testing.T) {
	f := newFixture(overTCP, libp2p.ConnectionGater(rude{}))
	f.config.Wait = 500 * time.Millisecond
	c := f.dial(t)
	require.Eventually(t, func() bool {
		err := list(c).Run()
		require.NotErrorIs(t, err, ErrNotAdmitted)
		if errors.Is(err, ErrOutcomeUnknown) {
			require.Equal(t, 255, ExitStatus(err), "%v", err)
			return true
		}
		require.ErrorIs(t, err, dial.ErrHungUp, "it was quicker than the request")
		require.Equal(t, 125, ExitStatus(err), "%v", err)
		return false
	}, 30*time.Second, time.Millisecond)
	require.Empty(t, f.seen())

	_, err := c.Status(t.Context(), testKey(f))
	require.ErrorIs(t, err, dial.ErrHungUp, "a question waits for the first word")
	require.ErrorIs(t, err, ErrUnreachable)
}

// once lets one connection in.
type once struct {
	shut
	taken *atomic.Bool
}

func (o once) InterceptUpgraded(network.Conn) (bool, control.DisconnectReason) {
	return o.taken.CompareAndSwap(false, true), 0
}

// A peer whose request was read, and who is turned away when it asks again, is not told
// that nothing ran.
func TestTurnedAwayAfterARequestIsUnknown(t *testing.T) {
	for transport, listen := range map[string]string{"tcp": overTCP, "quic": overQUIC} {
		t.Run(transport, func(t *testing.T) {
			gate := libp2p.ConnectionGater(once{taken: new(atomic.Bool)})
			f := newFixture(listen, gate, libp2p.Muxer(yamux.ID, door.Muxer()))
			f.config.Wait = 500 * time.Millisecond
			f.then(func(s *served) { _ = s.Conn().Close() })
			err := list(f.dial(t)).Run()
			require.Equal(t, 255, ExitStatus(err), "%v", err)
			require.ErrorIs(t, err, ErrOutcomeUnknown)
			require.Len(t, f.seen(), 1)
		})
	}
}

// mute takes the first connection and reads nothing of it until release is closed.
type mute struct {
	shut
	links   *atomic.Int32
	release chan struct{}
}

func (m mute) InterceptUpgraded(network.Conn) (bool, control.DisconnectReason) {
	if m.links.Add(1) == 1 {
		<-m.release
	}
	return true, 0
}

// A new connection on which no word comes is given up for another, and the request goes
// there under the same ID.
func TestASilentNewLinkIsReplaced(t *testing.T) {
	m := mute{links: new(atomic.Int32), release: make(chan struct{})}
	f := newFixture(overTCP, libp2p.ConnectionGater(m))
	f.then(exits(&protocol.Exit{}))
	c := f.dial(t)
	defer close(m.release)
	require.NoError(t, list(c).Run())
	require.Equal(t, int32(2), m.links.Load(), "the first was silent")
	require.Len(t, f.seen(), 1)
}

// hasty hangs up on the first connections, as a bad link does.
type hasty struct {
	shut
	left *atomic.Int32
}

func (h hasty) InterceptUpgraded(network.Conn) (bool, control.DisconnectReason) { return true, 0 }

func (h hasty) InterceptSecured(network.Direction, peer.ID, network.ConnMultiaddrs) bool {
	return h.left.Add(-1) < 0
}

// A link that was lost before the gateway's first word is replaced: for an operation,
// under the same ID, and for what is asked.
func TestALinkLostBeforeTheFirstWordIsReplaced(t *testing.T) {
	var left atomic.Int32
	f := newFixture(overTCP, libp2p.ConnectionGater(hasty{left: &left}))
	left.Store(2)
	f.then(exits(&protocol.Exit{}))
	c := f.dial(t)
	require.NoError(t, list(c).Run())
	require.Len(t, f.seen(), 1)

	require.NoError(t, c.dialer.Host.Network().ClosePeer(f.host.ID()))
	left.Store(1)
	f.onControl(func(protocol.ControlRequest) protocol.ControlReply {
		return &protocol.StatusReply{State: protocol.OperationRunning}
	})
	_, err := c.Status(t.Context(), testKey(f))
	require.NoError(t, err)

	f.config.Wait = -1 // not at all
	impatient := f.dial(t)
	left.Store(1000)
	err = list(impatient).Run()
	if !errors.Is(err, ErrUnreachable) { // the end was seen before anything was sent
		require.Equal(t, 255, ExitStatus(err), "%v", err)
	}
	require.Error(t, err)
	require.Positive(t, left.Load()-990)
}

// A gateway that does not answer at all is waited for as long as was asked.
func TestTheWaitBoundsAConnection(t *testing.T) {
	deaf, err := net.ListenPacket("udp4", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = deaf.Close() }()
	f := newFixture(overTCP)
	f.config.Wait = -1
	f.config.Addresses = []multiaddr.Multiaddr{addr(fmt.Sprintf("/ip4/127.0.0.1/udp/%d/quic-v1", deaf.LocalAddr().(*net.UDPAddr).Port))}
	began := time.Now()
	err = list(f.dial(t)).Run()
	require.Equal(t, 125, ExitStatus(err), "%v", err)
	require.Less(t, time.Since(began), 5*time.Second)
}

func TestNotAGateway(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) { //nolint:thelper // the test itself
		f.host.RemoveStreamHandler(protocol.RunID)
		c := f.dial(t)
		err := list(c).Run()
		require.ErrorIs(t, err, ErrNotGateway)
		require.Equal(t, 125, ExitStatus(err))

		f.onControl(func(protocol.ControlRequest) protocol.ControlReply {
			return &protocol.StatusReply{State: protocol.OperationRunning}
		})
		_, err = c.Status(context.Background(), testKey(f))
		require.NoError(t, err) // the connection has answered now
		err = list(c).Run()
		require.ErrorIs(t, err, ErrNotGateway)
		require.Equal(t, 125, ExitStatus(err))
	})
}

func testKey(f *fixture) protocol.OperationKey {
	return protocol.OperationKey{
		Issuer: f.lease.Issuer, Invocation: f.lease.Invocation,
		Operation: must(name.ParseOperationID("op-0123456789abcdef")),
	}
}

// spec: CONTROL-2, CONTROL-5
func TestControl(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) { //nolint:thelper // the test itself
		c := f.dial(t)
		ctx := context.Background()
		ended := &protocol.StatusReply{State: protocol.OperationEnded, Exit: &protocol.Exit{Status: 1}}
		f.onControl(func(q protocol.ControlRequest) protocol.ControlReply {
			if _, ok := q.(*protocol.RevokeRequest); ok {
				return &protocol.RevokeReply{Stopped: 2}
			}
			return ended
		})
		status, err := c.Status(ctx, testKey(f))
		require.NoError(t, err)
		require.Equal(t, ended, status)
		revoked, err := c.Revoke(ctx, []byte("envelope"))
		require.NoError(t, err)
		require.Equal(t, uint32(2), revoked.Stopped)
		require.Equal(t, []protocol.ControlRequest{
			&protocol.StatusRequest{OperationKey: testKey(f)}, &protocol.RevokeRequest{Envelope: []byte("envelope")},
		}, f.questions())

		f.onControl(func(protocol.ControlRequest) protocol.ControlReply { return &protocol.RevokeReply{} })
		_, err = c.Status(ctx, testKey(f))
		require.ErrorContains(t, err, "CONTROL-2")
		f.onControl(func(protocol.ControlRequest) protocol.ControlReply {
			return (&protocol.Refusal{Code: protocol.CodeOperationUnknown}).Frame()
		})
		_, err = c.Status(ctx, testKey(f))
		var refused *RefusedError
		require.ErrorAs(t, err, &refused)
		f.onControl(nil)
		_, err = c.Status(ctx, testKey(f))
		require.Error(t, err)
	})
}

// spec: CATALOG-1, CATALOG-2
func TestCatalog(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) { //nolint:thelper // the test itself
		c := f.dial(t)
		want := []protocol.CatalogEntry{{
			Connector: key("github"), Version: version("2.40.1"), Command: must(name.ParseCommand("issue.list")), Summary: "List issues",
		}}
		answers := make(chan func(s network.Stream), 1)
		f.host.SetStreamHandler(protocol.CatalogID, func(s network.Stream) {
			q, err := protocol.ReadCatalogRequest(s)
			if err == nil && len(q.Lease) == 1 {
				(<-answers)(s)
			}
			_ = s.Close()
		})
		answers <- func(s network.Stream) { _ = protocol.WriteCatalog(s, want) }
		got, err := c.Catalog(context.Background())
		require.NoError(t, err)
		require.Equal(t, want, got)

		answers <- func(s network.Stream) {
			_ = protocol.WriteCatalogRefused(s, (&protocol.Refusal{Code: protocol.CodeDenied}).Frame())
		}
		_, err = c.Catalog(context.Background())
		var refused *RefusedError
		require.ErrorAs(t, err, &refused)

		answers <- func(network.Stream) {}
		_, err = c.Catalog(context.Background())
		require.Error(t, err, "no end is no catalogue")

		hold := make(chan struct{})
		answers <- func(network.Stream) { <-hold }
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		_, err = c.Catalog(ctx)
		close(hold)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

func TestNewWantsAnIdentityAndLeases(t *testing.T) {
	_, err := New(Config{})
	require.ErrorContains(t, err, "lease source")
	_, err = New(Config{Leases: Static(lease.File{})})
	require.ErrorContains(t, err, "identity")
}

func TestAHostOfTheProductIsNotClosed(t *testing.T) {
	f := newFixture(overTCP)
	own := must(dial.NewHost(must(cryptoKey(f.key))))
	defer func() { require.NoError(t, own.Close()) }()
	f.config.Key, f.config.Host = nil, own
	c, err := New(f.config)
	require.NoError(t, err)
	f.then(exits(&protocol.Exit{}))
	require.NoError(t, list(c).Run())
	require.NoError(t, c.Close())
	require.Len(t, own.Network().Conns(), 1)
	require.NoError(t, own.Network().ClosePeer(f.host.ID()))
	f.close()
}
