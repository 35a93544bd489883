package gateway

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/gateway/ledger"
	"github.com/lendcli/lend/gateway/operation"
	"github.com/lendcli/lend/gateway/revocations"
	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/lease/revocation"
	"github.com/lendcli/lend/policy"
	"github.com/lendcli/lend/protocol"
	"github.com/lendcli/lend/protocol/name"
)

var errBroken = errors.New("the link broke")

// brokenStream can be read, and takes nothing that is written.
type brokenStream struct {
	*localStream
	io.Reader
	resets []network.StreamErrorCode
}

func (s *brokenStream) Read(b []byte) (int, error)       { return s.Reader.Read(b) }
func (s *brokenStream) Write([]byte) (int, error)        { return 0, errBroken }
func (s *brokenStream) Close() error                     { return nil }
func (s *brokenStream) SetDeadline(time.Time) error      { return nil }
func (s *brokenStream) SetReadDeadline(time.Time) error  { return nil }
func (s *brokenStream) SetWriteDeadline(time.Time) error { return nil }

func (s *brokenStream) ResetWithError(code network.StreamErrorCode) error {
	s.resets = append(s.resets, code)
	return nil
}

// agentCall is a call of the agent that no network made.
func (w *world) agentCall(s network.Stream) *call {
	return &call{Stream: s, caller: w.agentCaller(), read: func() { w.t.Error("the answer counts as written") }}
}

func (w *world) agentCaller() caller {
	return caller{id: must(peer.Decode(w.agent.id.String())), holder: w.agent.id}
}

// TestLinkThatBreaksWhileItIsAnswered: the stream is reset with what was to be said, and
// nobody waits for the peer to read it.
func TestLinkThatBreaksWhileItIsAnswered(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var request bytes.Buffer
	require.NoError(t, protocol.WriteCatalogRequest(&request, &protocol.CatalogRequest{Lease: [][]byte{w.lease()}}))
	for title, c := range map[string]struct {
		serve   func(*call) error
		limited bool
		want    protocol.Code
	}{
		"run refused":       {w.node.run, true, protocol.CodeLimitedLink},
		"control refused":   {w.node.control, true, protocol.CodeInternal},
		"catalogue refused": {w.node.catalog, true, protocol.CodeLimitedLink},
		"catalogue":         {w.node.catalog, false, protocol.CodeInternal},
	} {
		s := &brokenStream{localStream: &localStream{conn: localConn{stats: network.ConnStats{Stats: network.Stats{Limited: c.limited}}}}, Reader: bytes.NewReader(request.Bytes())}
		require.ErrorIs(t, c.serve(w.agentCall(s)), errBroken, title)
		require.Equal(t, []network.StreamErrorCode{network.StreamErrorCode(protocol.ResetBase + uint32(c.want))}, s.resets, title)
	}
}

// surface is that of print under a policy that says this of it.
func (w *world) surface(narrow string) *policy.Surface {
	w.t.Helper()
	target := policy.Target{Connector: must(name.ParseConnectorKey("fx")), Version: must(name.ParseVersion("1.0.0")), Command: must(name.ParseCommand("print"))}
	p := w.parse(strings.Replace(basicPolicy, "print: {}", "print: "+narrow, 1))
	all := p.Freeze(w.issuer.id, w.agent.id, w.clock.now(), []policy.Target{target}, w.node.contracts)
	require.Len(w.t, all, 1)
	return all[0]
}

// TestWhatIsDescribed is what the lease grants, and what both surfaces leave of it.
func TestWhatIsDescribed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	wide, narrow := w.surface("{}"), w.surface(`{size: {enum: [1, 2]}}`)
	verified, err := w.node.verify(w.agentCaller(), [][]byte{w.lease()})
	require.NoError(t, err)

	same, err := describe(verified, wide, wide)
	require.NoError(t, err)
	require.NotContains(t, string(same.InputSchema), "allOf")
	both, err := describe(verified, wide, narrow)
	require.NoError(t, err)
	require.Contains(t, string(both.InputSchema), "allOf")

	var refused *lease.Error
	_, err = describe(&lease.Verified{}, wide, wide)
	require.ErrorAs(t, err, &refused, "it was not granted")

	verified.Grants[0].Pins = map[name.Parameter][]string{must(name.ParseParameter("size")): {"3"}}
	_, err = describe(verified, wide, wide)
	require.NoError(t, err)
	_, err = describe(verified, narrow, wide)
	require.Error(t, err)
	_, err = describe(verified, wide, narrow)
	require.Error(t, err)
}

// TestCatalogueLeavesOutWhatPinsMakeImpossible, and nothing else.
func TestCatalogueLeavesOutWhatPinsMakeImpossible(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.dial(w.agent, "tcp")
	shown, err := d.catalogue(w.lease(func(l *lease.Lease) {
		l.Grants[0].Commands = []name.Command{must(name.ParseCommand("exit")), must(name.ParseCommand("print"))}
		l.Grants[0].Pins = map[name.Parameter][]string{must(name.ParseParameter("size")): {"5"}}
	}))
	require.NoError(t, err)
	require.Len(t, shown, 1, "exit has no size")
	require.Equal(t, "print", shown[0].Command.String())
}

// TestRecordThatCannotBeMade: what cannot be recorded does not start, and its ID is
// free.
func TestRecordThatCannotBeMade(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s, c := w.start(w.lease(), "print", "--size=1"), w.agentCaller()
	verified, err := w.node.verify(c, s.Lease)
	require.NoError(t, err)
	request := policy.Request{
		Issuer: verified.Root, Peer: c.holder, Connector: s.Connector, Version: s.Version, Command: s.Command,
		Arguments: s.Arguments, Now: w.clock.now(),
	}
	decided, err := w.node.decide(verified, request)
	require.NoError(t, err)
	decided.Rule.Name = strings.Repeat("r", ledger.MaxAudit)
	key := ledger.Key{Issuer: verified.Root, Invocation: verified.Invocation, Holder: c.holder, Operation: s.Operation}
	released := 0
	e := w.node.newEntry(key, w.node.digest(s), c, verified, request, decided, func() { released++ })
	out, err := w.node.begin(e, decided)
	require.ErrorContains(t, err, "encode record: ")
	require.Zero(t, out)
	require.Equal(t, err, e.err)
	require.Zero(t, w.host.Starts.Load())
	require.Positive(t, released)
	w.dial(w.agent, "tcp").run(s).finish()
}

// TestIssuerThatIsGoneIsTrustedByNobody: what runs under it ends when somebody looks,
// without a reload.
func TestIssuerThatIsGoneIsTrustedByNobody(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.dial(w.agent, "tcp").run(w.start(w.lease(), "sleep")).answer()
	require.NotNil(t, r.accepted)
	running := w.node.live.all()[0].op.Context()
	w.node.policy.Store(w.parse(strings.Replace(basicPolicy, "{id: ISSUER", "{id: "+newIdentity(t).id.String(), 1)))
	w.node.Recheck()
	require.Equal(t, operation.CausePolicy, context.Cause(running))
	require.Equal(t, protocol.CodePolicyChanged, r.finish().Code)
}

// halfKept has a revocation that counts, and could not be written.
type halfKept struct{ *revocations.Store }

func (h halfKept) Accept(a *revocation.Authority, envelope []byte) (name.PeerID, revocation.Entry, bool, error) {
	by, e, added, err := h.Store.Accept(a, envelope)
	return by, e, added, errors.Join(err, revocations.ErrFull)
}

// TestRevocationThatIsNotKept is not in the record as one that is.
func TestRevocationThatIsNotKept(t *testing.T) {
	t.Parallel()
	s := newStored(t)
	s.node.revoking.registry = halfKept{s.store}
	d := s.dial(s.agent, "tcp")
	d.wantNotRevoked(protocol.CodeUnsupported, s.sign(s.owner, revocation.Entry{Holder: s.other.id}))
	require.Len(t, s.store.Entries(), 1, "it counts")
	require.Empty(t, s.events("revocation.added"))
}

// TestViolationIsDenied: who does not speak the protocol waits, as who shows a bad lease.
func TestViolationIsDenied(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withPolicy(limited("denials: 1", "stdout: 1MiB")))
	d := w.dial(w.agent, "tcp")
	d.run(&protocol.ExitAck{}).wantRefused(protocol.CodeProtocolViolation)
	penalties := w.node.Status().Penalties
	require.Len(t, penalties, 1)
	require.Equal(t, w.agent.id, penalties[0].Peer)
}
