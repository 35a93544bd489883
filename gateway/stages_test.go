package gateway

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	core "github.com/libp2p/go-libp2p/core/protocol"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/gateway/door"
	"github.com/lendcli/lend/gateway/early"
	"github.com/lendcli/lend/gateway/internal/fakehost"
	"github.com/lendcli/lend/gateway/ledger"
	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/localhost/route"
	"github.com/lendcli/lend/protocol"
	"github.com/lendcli/lend/protocol/argv"
	"github.com/lendcli/lend/protocol/name"
	"github.com/lendcli/lend/protocol/pair"
)

// Each guard of admission by itself: something goes wrong at one place only, and the
// answer names that place. Where another guard stands behind, its answer would differ.

// tampered is a book in which single answers are others.
type tampered struct {
	book
	lookup, reserve error
	frozen          func() ([]byte, bool, error)
}

func (b *tampered) Lookup(k ledger.Key) (ledger.Outcome, error) {
	if b.lookup != nil {
		return ledger.Outcome{}, b.lookup
	}
	return b.book.Lookup(k)
}

func (b *tampered) Reserve(c ledger.Claim) (ledger.Outcome, error) {
	if b.reserve != nil {
		return ledger.Outcome{}, b.reserve
	}
	return b.book.Reserve(c)
}

func (b *tampered) Frozen(i name.PeerID, v name.InvocationID, h name.PeerID) ([]byte, bool, error) {
	if b.frozen != nil {
		return b.frozen()
	}
	return b.book.Frozen(i, v, h)
}

// tamper puts a tampered book between the node and its ledger. No stream may be open
// yet.
func (w *world) tamper(b tampered) {
	b.book = w.node.ledger
	w.node.ledger = &b
}

func TestFaultOfEachQuestionToTheLedger(t *testing.T) {
	t.Parallel()
	for title, c := range map[string]struct {
		book tampered
		want protocol.Code
	}{
		"lookup":        {tampered{lookup: ledger.ErrFull}, protocol.CodeBusy},
		"reserve":       {tampered{reserve: ledger.ErrFull}, protocol.CodeBusy},
		"frozen":        {tampered{frozen: func() ([]byte, bool, error) { return nil, false, ledger.ErrFull }}, protocol.CodeBusy},
		"frozen-broken": {tampered{frozen: func() ([]byte, bool, error) { return []byte("[{}]"), true, nil }}, protocol.CodeInternal},
		"frozen-no-list": {
			tampered{frozen: func() ([]byte, bool, error) { return []byte("{"), true, nil }}, protocol.CodeInternal,
		},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.tamper(c.book)
			d := w.dial(w.agent, "tcp")
			d.run(w.start(w.lease(), "exit", "--code=0")).wantRefused(c.want)
			require.Zero(t, w.host.Starts.Load())
			if strings.HasPrefix(title, "frozen") {
				s := d.stream(protocol.CatalogID)
				require.NoError(t, protocol.WriteCatalogRequest(s, &protocol.CatalogRequest{Lease: [][]byte{w.lease()}}))
				_, err := protocol.ReadCatalog(s)
				var refused *protocol.Refusal
				require.ErrorAs(t, err, &refused)
				require.Equal(t, c.want, refused.Code)
			}
		})
	}
}

// TestFirstUseThatWasOvertaken: the grant that another first use froze holds, though
// this one was decided by its own.
func TestFirstUseThatWasOvertaken(t *testing.T) {
	t.Parallel()
	narrow := strings.Replace(basicPolicy, "exit: {}, ", "", 1)
	w := newWorld(t, withPolicy(narrow))
	w.tamper(tampered{frozen: func() ([]byte, bool, error) { return nil, false, nil }}) // not yet, for whoever asks
	d, l := w.dial(w.agent, "tcp"), w.lease()
	d.run(w.start(l, "print", "--size=1")).finish()
	w.node.Reload(w.parse(basicPolicy))
	before := w.host.Starts.Load()
	d.run(w.start(l, "exit", "--code=0")).wantRefused(protocol.CodeCommandUnknown)
	require.Equal(t, before, w.host.Starts.Load())
	d.run(w.start(l, "print", "--size=1")).finish()
}

// atRoute runs f once, when the route of a Start is resolved: after the decision and
// before the last look. No stream may be open yet.
func (w *world) atRoute(f func(route.Descriptor, error) (route.Descriptor, error)) {
	resolve, once := w.node.resolve, false
	var mu sync.Mutex
	w.node.resolve = func(q route.Query) (route.Descriptor, error) {
		d, err := resolve(q)
		mu.Lock()
		defer mu.Unlock()
		if once {
			return d, err
		}
		once = true
		return f(d, err)
	}
}

func TestWhatChangesAtTheLastMoment(t *testing.T) {
	t.Parallel()
	for title, c := range map[string]struct {
		change func(*world)
		want   protocol.Code
	}{
		"nothing":   {func(*world) {}, protocol.CodeOK},
		"suspended": {func(w *world) { w.node.suspended.Store(true) }, protocol.CodePolicyDenied},
		"no-policy": {func(w *world) { w.node.policy.Store(nil) }, protocol.CodeDenied},
		"revoked":   {func(w *world) { w.revokeAll() }, protocol.CodeLeaseRevoked},
		"expired":   {func(w *world) { w.clock.advance(11 * time.Minute) }, protocol.CodeLeaseExpired},
		"issuer-gone": {func(w *world) {
			w.node.policy.Store(w.parse("policy: 1\nissuers: {other: {id: " + w.agent.id.String() + ", connectors: any}}\n"))
		}, protocol.CodeDenied},
		"command-gone":  {func(w *world) { w.node.policy.Store(w.parse(strings.Replace(basicPolicy, "exit: {}, ", "", 1))) }, protocol.CodeCommandUnknown},
		"other-limits":  {func(w *world) { w.node.policy.Store(w.parse(basicPolicy + "    limits: {stdout: 1KiB}\n")) }, protocol.CodeBusy},
		"same-and-read": {func(w *world) { w.node.policy.Store(w.parse(basicPolicy)) }, protocol.CodeOK},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.atRoute(func(d route.Descriptor, err error) (route.Descriptor, error) {
				c.change(w)
				return d, err
			})
			d := w.dial(w.agent, "tcp")
			r := d.run(w.start(w.lease(), "exit", "--code=0"))
			if c.want == protocol.CodeOK {
				require.Equal(t, protocol.CodeOK, r.finish().Code)
				return
			}
			r.wantRefused(c.want)
			require.Zero(t, w.host.Starts.Load())
		})
	}
}

func TestRouteOfTheLastMoment(t *testing.T) {
	t.Parallel()
	for title, c := range map[string]struct {
		change func(*route.Descriptor) error
		want   protocol.Code
	}{
		"gone":      {func(*route.Descriptor) error { return route.ErrNotFound }, protocol.CodeRouteUnavailable},
		"ambiguous": {func(*route.Descriptor) error { return route.ErrAmbiguous }, protocol.CodeRouteAmbiguous},
		"replaced": {func(d *route.Descriptor) error {
			d.Identity.ContractHash = "sha256:" + strings.Repeat("0", 64)
			return nil
		}, protocol.CodeRouteChanged},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.atRoute(func(d route.Descriptor, err error) (route.Descriptor, error) {
				return d, errors.Join(err, c.change(&d))
			})
			w.dial(w.agent, "tcp").run(w.start(w.lease(), "exit", "--code=0")).wantRefused(c.want)
			require.Zero(t, w.host.Starts.Load())
		})
	}
}

// TestSuspendedInvocation: an invocation that has begun starts nothing more without a
// policy.
func TestSuspendedInvocation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d, l := w.dial(w.agent, "tcp"), w.lease()
	d.run(w.start(l, "exit", "--code=0")).finish()
	w.node.Suspend()
	for _, chain := range [][]byte{l, w.lease(func(l *lease.Lease) { l.Invocation = must(name.ParseInvocationID("another")) })} {
		d.run(w.start(chain, "exit", "--code=0")).wantRefused(protocol.CodePolicyDenied)
		s := d.stream(protocol.CatalogID)
		require.NoError(t, protocol.WriteCatalogRequest(s, &protocol.CatalogRequest{Lease: [][]byte{chain}}))
		_, err := protocol.ReadCatalog(s)
		var refused *protocol.Refusal
		require.ErrorAs(t, err, &refused)
		require.Equal(t, protocol.CodePolicyDenied, refused.Code)
	}
	require.Equal(t, int64(1), w.host.Starts.Load())
}

// TestSameIDWhileItRuns: another request under the ID of what runs is a conflict, and
// what waits with the first hears what the first hears.
func TestSameIDWhileItRuns(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d, l := w.dial(w.agent, "tcp"), w.lease()
	s := w.start(l, "sleep")
	r := d.run(s).answer()
	other := w.start(l, "print", "--size=1")
	other.Operation = s.Operation
	d.run(other).wantRefused(protocol.CodeOperationConflict)
	require.Equal(t, int64(1), w.host.Starts.Load())
	w.cancel(d, s)
	r.finish()
}

func TestWhoWaitsHearsTheRefusal(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	held, leave := make(chan struct{}), make(chan struct{})
	w.atRoute(func(d route.Descriptor, _ error) (route.Descriptor, error) {
		close(held)
		<-leave
		return d, route.ErrNotFound
	})
	d, l := w.dial(w.agent, "tcp"), w.lease()
	s := w.start(l, "sleep")
	first := d.run(s)
	<-held
	again, follower := d.run(s), d.run(w.attach(s, nil, 0))
	eventually(t, func() bool { // both wait with the first
		stacks := make([]byte, 4<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		return bytes.Contains(stacks, []byte("gateway.join(")) && bytes.Contains(stacks, []byte(".serveAttach("))
	})
	close(leave)
	for _, r := range []*remote{first, again, follower} {
		r.wantRefused(protocol.CodeRouteUnavailable)
	}
	require.Zero(t, w.host.Starts.Load())
}

// TestStartsTakeTurns: who gets no permit is told so, and takes none.
func TestStartsTakeTurns(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.node.permits = door.NewPermits(1)
	d, l := w.dial(w.agent, "tcp"), w.lease()
	require.NoError(t, w.node.permits.Acquire(t.Context(), w.node.host.ID()))
	s := w.start(l, "sleep")
	waiting := d.run(s)
	eventually(t, func() bool { return len(w.node.live.all()) == 1 })
	w.cancel(d, s)
	waiting.wantRefused(protocol.CodeCancelled)
	d.run(w.start(l, "sleep")).wantRefused(protocol.CodeBusy) // after ten seconds
	require.Zero(t, w.host.Starts.Load())
	w.node.permits.Release()
	d.run(w.start(l, "exit", "--code=0")).finish()
}

func TestCapabilityIsWhole(t *testing.T) {
	t.Parallel()
	host := &fakehost.Host{Programs: programs()}
	host.Publish(descriptor())
	p := startPort{host}
	whole := func() *capability {
		return &capability{
			issuer: newIdentity(t).id, holder: newIdentity(t).id, route: descriptor().Identity, frozen: []byte("[]"),
			call: argv.Call{Arguments: []string{"exit", "--code=0"}},
		}
	}
	ready, err := p.prepare(t.Context(), whole())
	require.NoError(t, err)
	require.Zero(t, host.Starts.Load())
	process, err := ready.Start(t.Context())
	require.NoError(t, err)
	require.NoError(t, process.Close())
	for title, change := range map[string]func(*capability){
		"no-holder": func(c *capability) { c.holder = name.PeerID{} },
		"no-route":  func(c *capability) { c.route = route.Identity{} },
		"no-grant":  func(c *capability) { c.frozen = nil },
	} {
		c := whole()
		change(c)
		_, err := p.prepare(t.Context(), c)
		require.ErrorIs(t, err, errNoCapability, title)
	}
	_, err = p.prepare(t.Context(), nil)
	require.ErrorIs(t, err, errNoCapability)
	_, err = startPort{faultyRuntime{host, func(string) error { return errBroken }}}.prepare(t.Context(), whole())
	require.ErrorIs(t, err, errNothingPrepared)
	require.Equal(t, int64(1), host.Starts.Load())
}

// TestCancelNeedsItsOwnLease: a lease of another invocation cancels nothing that has
// not begun.
func TestCancelNeedsItsOwnLease(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.dial(w.agent, "tcp")
	s := w.start(w.lease(), "sleep")
	other := w.lease(func(l *lease.Lease) { l.Invocation = must(name.ParseInvocationID("another")) })
	refused, ok := w.cancel(d, s, other).(*protocol.Refused)
	require.True(t, ok)
	require.Equal(t, protocol.CodeOperationUnknown, refused.Code)
	key := w.key(s)
	key.Issuer = newIdentity(t).id
	c := d.stream(protocol.ControlID)
	require.NoError(t, protocol.WriteControlRequest(c, &protocol.CancelRequest{OperationKey: key, Lease: [][]byte{w.lease()}}))
	reply, err := protocol.ReadControlReply(c)
	require.NoError(t, err)
	refused, ok = reply.(*protocol.Refused)
	require.True(t, ok)
	require.Equal(t, protocol.CodeOperationUnknown, refused.Code)

	for range early.MaxPerHolder {
		require.Equal(t, &protocol.CancelReply{State: protocol.OperationNotStarted}, w.cancel(d, w.start(w.lease(), "sleep"), w.lease()))
	}
	refused, ok = w.cancel(d, w.start(w.lease(), "sleep"), w.lease()).(*protocol.Refused)
	require.True(t, ok, "more is not remembered, so it is not promised")
	require.Equal(t, protocol.CodeBusy, refused.Code)
}

// TestGarbageOnEachProtocol is answered as what it is.
func TestGarbageOnEachProtocol(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.dial(w.agent, "tcp")
	for _, id := range []string{protocol.ControlID, protocol.CatalogID} {
		s := d.stream(id)
		_, err := s.Write([]byte{3, 'a', 'b', 'c'})
		require.NoError(t, err)
		if id == protocol.ControlID {
			reply, err := protocol.ReadControlReply(s)
			require.NoError(t, err)
			refused, ok := reply.(*protocol.Refused)
			require.True(t, ok)
			require.Equal(t, protocol.CodeProtocolViolation, refused.Code)
			continue
		}
		_, err = protocol.ReadCatalog(s)
		var refused *protocol.Refusal
		require.ErrorAs(t, err, &refused)
		require.Equal(t, protocol.CodeProtocolViolation, refused.Code)
	}
	s := d.stream(protocol.RunID) // who says nothing gets no answer
	require.NoError(t, s.CloseWrite())
	b, err := io.ReadAll(s)
	require.Error(t, err)
	require.Empty(t, b)
}

// otherStream is a stream of another protocol, or one that cannot be read.
type otherStream struct {
	*localStream
	id  string
	err error
}

func (s *otherStream) Protocol() core.ID { return core.ID(s.id) }
func (s *otherStream) Read(b []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	return s.localStream.Read(b)
}

// serveStream serves a stream that no network made, and returns the caller's end.
func (w *world) serveStream(id string, serve func(*call) error, limited bool, err error) net.Conn {
	ours, theirs := net.Pipe()
	require.NoError(w.t, ours.SetDeadline(time.Now().Add(patience)))
	done := make(chan struct{})
	go func() {
		defer close(done)
		c := localConn{peer: must(peer.Decode(w.agent.id.String())), stats: network.ConnStats{Stats: network.Stats{Limited: limited}}}
		w.node.handler(serve)(&otherStream{&localStream{pipe: theirs, conn: c}, id, err})
	}()
	w.t.Cleanup(func() { _ = ours.Close(); <-done })
	return ours
}

func TestRelayedLinksAreRefusedOnEachProtocol(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	reply, err := protocol.ReadControlReply(w.serveStream(protocol.ControlID, w.node.control, true, nil))
	require.NoError(t, err)
	refused, ok := reply.(*protocol.Refused)
	require.True(t, ok)
	require.Equal(t, protocol.CodeLimitedLink, refused.Code)
	_, err = protocol.ReadCatalog(w.serveStream(protocol.CatalogID, w.node.catalog, true, nil))
	var r *protocol.Refusal
	require.ErrorAs(t, err, &r)
	require.Equal(t, protocol.CodeLimitedLink, r.Code)
}

// TestSilenceIsDenied: who opens streams and says nothing waits.
func TestSilenceIsDenied(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withPolicy(limited("denials: 1", "stdout: 1MiB")))
	d := w.dial(w.agent, "tcp") // the door knows who is connected
	require.Empty(t, w.node.Status().Penalties)
	_, err := w.serveStream(protocol.RunID, w.node.run, false, os.ErrDeadlineExceeded).Read(make([]byte, 1))
	require.Error(t, err)
	eventually(t, func() bool { return len(w.node.Status().Penalties) == 1 })
	require.Equal(t, w.agent.id, w.node.Status().Penalties[0].Peer)
	require.NoError(t, d.host.Close())
}

// brokenObserver panics where no stage of admission is.
type brokenObserver struct{ nobody }

func (brokenObserver) Refused(protocol.Code) { panic("observer") }

func TestPanicInAHandlerEndsItsStream(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(_ *world, c *Config) { c.Observer = brokenObserver{} })
	d := w.dial(w.agent, "tcp")
	r := d.run(w.start([]byte("no lease"), "print"))
	require.Error(t, r.next())
	require.Nil(t, r.refused)
	d.run(w.start(w.lease(), "print", "--size=1")).finish()
	_, err := w.serveStream(protocol.RunID, func(*call) error { panic("here") }, false, nil).Read(make([]byte, 1))
	require.Error(t, err)
}

// TestLeasesAreCountedByThemselves: what runs at once is bounded for each lease, and a
// lease is the issuer's and the ID's.
func TestLeasesAreCountedByThemselves(t *testing.T) {
	t.Parallel()
	other := newIdentity(t)
	w := newWorld(t, func(w *world, c *Config) {
		c.Policy = w.parse(strings.Replace(basicPolicy, "peers:", "  other: {id: "+other.id.String()+", connectors: any}\npeers:", 1))
	})
	d := w.dial(w.agent, "tcp")
	one := func(l *lease.Lease) { l.MaxConcurrent = 1; l.ID = lease.ID{7} }
	chains := [][]byte{
		w.lease(one),
		w.lease(func(l *lease.Lease) { l.MaxConcurrent = 1; l.ID = lease.ID{8} }),
		w.seal(other, one),
	}
	var running []*remote
	var starts []*protocol.Start
	for _, chain := range chains {
		s := w.start(chain, "sleep")
		r := d.run(s).answer()
		require.NotNil(t, r.accepted, "%+v", r.refused)
		running, starts = append(running, r), append(starts, s)
		d.run(w.start(chain, "sleep")).wantRefused(protocol.CodeLeaseAtOnce)
	}
	require.Len(t, w.node.live.all(), 3)
	for i := range running {
		for _, e := range w.node.live.all() {
			if e.key.Operation == starts[i].Operation {
				require.True(t, w.node.Stop(e.key, true))
			}
		}
		running[i].finish()
	}
}

// TestCatalogueNamesEachCommandOnce, though two rules allow it.
func TestCatalogueNamesEachCommandOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withPolicy(basicPolicy+`
  - name: again
    to: [agent]
    connector: fx
    version: "1.0.0"
    commands: {print: {}}
`))
	d := w.dial(w.agent, "tcp")
	s := d.stream(protocol.CatalogID)
	require.NoError(t, protocol.WriteCatalogRequest(s, &protocol.CatalogRequest{Lease: [][]byte{w.lease()}}))
	entries, err := protocol.ReadCatalog(s)
	require.NoError(t, err)
	n := 0
	for _, e := range entries {
		if e.Command.String() == "print" {
			n++
		}
	}
	require.Equal(t, 1, n)
}

// TestBarredPeersAreNotRead: who waits for its penalty hears so before it has said
// anything.
func TestBarredPeersAreNotRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withPolicy(limited("denials: 1", "stdout: 1MiB")))
	w.dial(w.agent, "tcp") // the door knows who is connected
	w.node.door.Deny(must(peer.Decode(w.agent.id.String())))
	c := w.serveStream(protocol.RunID, w.node.run, false, nil)
	require.NoError(t, c.SetDeadline(time.Now().Add(protocol.StartTimeout/2)))
	f, err := protocol.NewReader(c, protocol.Caller).Read()
	require.NoError(t, err)
	refused, ok := f.(*protocol.Refused)
	require.True(t, ok)
	require.Equal(t, protocol.CodeRateLimited, refused.Code)
}

// TestStreamsThatAreNotServed: of a peer without a name, of a guest, and after the end.
func TestStreamsThatAreNotServed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	served := func(*call) error { panic("served") }
	_, public, err := crypto.GenerateECDSAKeyPair(rand.Reader)
	require.NoError(t, err)
	nameless := must(peer.IDFromPublicKey(public))
	agent := must(peer.Decode(w.agent.id.String()))
	for _, c := range []struct {
		title, protocol string
		id              peer.ID
	}{
		{"nameless", protocol.RunID, nameless},
		{"nameless", pair.ID, nameless},
		{"guest", protocol.RunID, must(peer.Decode(newIdentity(t).id.String()))},
		{"closed", protocol.RunID, agent},
		{"closed", pair.ID, agent},
	} {
		title, id := c.title, c.id
		if title == "closed" {
			require.NoError(t, w.node.Close())
		}
		var log bytes.Buffer
		w.node.cfg.Log = zerolog.New(&log)
		ours, theirs := net.Pipe()
		go func() { _, _ = io.Copy(io.Discard, ours) }() // ends with the pipe
		w.node.handler(served)(&otherStream{&localStream{pipe: theirs, conn: localConn{peer: id}}, c.protocol, nil})
		require.NotContains(t, log.String(), "panic", "%s: it was served", title)
		if title == "guest" { // whoever looks for the reason finds it
			require.Contains(t, log.String(), `"code":"DENIED","cause":"\"the policy does not name the peer`)
			log.Reset()
		}
		require.Empty(t, log.String(), title)
		require.NoError(t, ours.Close())
	}
}

// TestUnwelcomePeersLeave: a policy that does not name a peer disconnects it.
func TestUnwelcomePeersLeave(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dial(w.agent, "tcp")
	eventually(t, func() bool { return len(w.node.Status().Peers) == 1 })
	w.node.Reload(w.parse(strings.Replace(basicPolicy, "agent: AGENT", "agent: "+newIdentity(t).id.String(), 1)))
	require.Eventually(t, func() bool { return len(w.node.Status().Peers) == 0 }, 5*time.Second, 5*time.Millisecond)
}
