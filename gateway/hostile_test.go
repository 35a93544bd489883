package gateway

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/gateway/ledger"
	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/policy"
	"github.com/lendcli/lend/protocol"
	"github.com/lendcli/lend/protocol/argv"
	"github.com/lendcli/lend/protocol/name"
)

func TestClockThatWasSetBackRevivesNoLease(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d, l := w.dial(w.agent, "tcp"), w.lease()
	d.run(w.start(l, "print", "--size=1")).finish()
	w.clock.advance(11 * time.Minute)
	d.run(w.start(l, "print", "--size=1")).wantRefused(protocol.CodeLeaseExpired)
	w.clock.advance(-11 * time.Minute)
	d.run(w.start(l, "print", "--size=1")).wantRefused(protocol.CodeLeaseExpired)
	require.Equal(t, int64(1), w.host.Starts.Load())
}

func TestClockOfTheLedgerHoldsAfterARestart(t *testing.T) {
	t.Parallel()
	var back clock
	dir := t.TempDir() + "/ledger"
	later, err := ledger.Open(ledger.Config{Dir: dir, Now: func() time.Time { return time.Now().Add(time.Hour) }})
	require.NoError(t, err)
	require.NoError(t, later.Close())
	w := newWorld(t, func(w *world, c *Config) {
		require.NoError(t, w.ledger.Close())
		w.ledger, err = ledger.Open(ledger.Config{Dir: dir})
		require.NoError(t, err)
		c.Ledger, c.Now = w.ledger, back.now
	})
	l := w.lease(func(l *lease.Lease) { // of the owner, who sees the right time
		l.IssuedAt, l.NotBefore = l.IssuedAt.Add(59*time.Minute), l.NotBefore.Add(59*time.Minute)
		l.NotAfter = l.IssuedAt.Add(time.Minute)
	})
	r := w.dial(w.agent, "tcp").run(w.start(l, "print", "--size=1")).answer()
	require.NotNil(t, r.refused)
	require.Contains(t, []protocol.Code{protocol.CodeLeaseExpired, protocol.CodeLeaseTooOld}, r.refused.Code)
	require.Zero(t, w.host.Starts.Load())
}

// interrupted is a ledger that has something happen before each reservation: what
// was decided before it is stale then.
type interrupted struct {
	book
	before func()
}

func (i interrupted) Reserve(c ledger.Claim) (ledger.Outcome, error) {
	i.before()
	return i.book.Reserve(c)
}

func TestWhatChangesDuringAdmissionCounts(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*world)
		code   protocol.Code
	}{
		"policy":  {func(w *world) { w.node.policy.Store(w.parse(bytesReplace(basicPolicy, "sleep: {}, ", ""))) }, protocol.CodeCommandUnknown},
		"nothing": {func(w *world) { w.node.policy.Store((*policy.Policy)(nil)) }, protocol.CodePolicyDenied},
		"revoked": {func(w *world) { w.revokeAll() }, protocol.CodeLeaseRevoked},
		"expired": {func(w *world) { w.clock.advance(time.Hour) }, protocol.CodeLeaseExpired},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.node.ledger = interrupted{w.node.ledger, func() { test.change(w) }}
			s := w.start(w.lease(), "sleep")
			r := w.dial(w.agent, "tcp").run(s).answer()
			require.NotNil(t, r.refused, "it was accepted")
			if name != "nothing" {
				require.Equal(t, test.code.String(), r.refused.Code.String())
			}
			require.Zero(t, w.host.Starts.Load())
		})
	}
}

func TestCancelOfAPendingStartHoldsForItsRepetition(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	reached, go_ := make(chan struct{}), make(chan struct{})
	w.node.ledger = interrupted{w.node.ledger, func() { close(reached); <-go_ }}
	d, l := w.dial(w.agent, "tcp"), w.lease()
	s := w.start(l, "sleep")
	r := d.run(s)
	<-reached
	require.Equal(t, &protocol.CancelReply{State: protocol.OperationRunning}, w.cancel(d, s))
	close(go_)
	r.wantRefused(protocol.CodeCancelled)
	d.run(s).wantRefused(protocol.CodeCancelled) // for ever
	require.Zero(t, w.host.Starts.Load())
}

// overtaken is a ledger in which an operation starts right after it was looked up.
type overtaken struct {
	book
	after func()
}

func (o overtaken) Lookup(k ledger.Key) (ledger.Outcome, error) {
	out, err := o.book.Lookup(k)
	o.after()
	return out, err
}

func TestCancelDoesNotDenyWhatStartedMeanwhile(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d, l := w.dial(w.agent, "tcp"), w.lease()
	s, ledger := w.start(l, "sleep"), w.node.ledger
	w.node.ledger = overtaken{ledger, func() {
		w.node.ledger = ledger
		d.run(s).answer()
	}}
	require.Equal(t, &protocol.CancelReply{State: protocol.OperationRunning}, w.cancel(d, s, l))
}

func TestEndsThatAreNotAcknowledgedAreBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withPolicy(basicPolicy+"limits:\n  operations_per_peer: 1\n"))
	d, l := w.dial(w.agent, "tcp"), w.lease()
	for range maxTails {
		r := d.run(w.start(l, "print", "--size=1"))
		r.until(func() bool { return r.exit != nil })
		require.NoError(t, r.stream.Reset())
	}
	d.run(w.start(l, "print", "--size=1")).wantRefused(protocol.CodeBusy)
	require.LessOrEqual(t, len(w.node.Status().Operations), maxTails)

	w = newWorld(t, func(_ *world, c *Config) { c.Memory = 1 })
	d, l = w.dial(w.agent, "tcp"), w.lease()
	r := d.run(w.start(l, "print", "--size=1"))
	r.until(func() bool { return r.exit != nil })
	d.run(w.start(l, "print", "--size=1")).wantRefused(protocol.CodeBusy)
	require.NoError(t, r.WriteFrame(&protocol.ExitAck{}))
	eventually(t, func() bool { return len(w.node.Status().Operations) == 0 })
	d.run(w.start(l, "print", "--size=1")).finish()
}

func TestStrangerWithAnOperationMayStay(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withPolicy(strangersPolicy))
	w.node.door.Grace = 300 * time.Millisecond
	first := w.dial(w.agent, "tcp")
	s := w.start(w.lease(func(l *lease.Lease) { l.Grants[0].Commands = []name.Command{must(name.ParseCommand("sleep"))} }), "sleep")
	r := first.run(s).answer()
	require.NotNil(t, r.accepted)
	require.NoError(t, first.host.Close())
	second := w.dial(w.agent, "tcp")
	again := second.run(w.attach(s, r.accepted.Token, 0)).answer()
	require.NotNil(t, again.accepted)
	pause := time.NewTimer(3 * w.node.door.Grace)
	<-pause.C
	w.cancel(second, s)
	require.Equal(t, protocol.CodeCancelled, again.finish().Code)
}

// asked is a ledger that says when it is asked for a frozen grant.
type asked struct {
	book
	in, on chan struct{}
}

func (a asked) Frozen(i name.PeerID, v name.InvocationID, h name.PeerID) ([]byte, bool, error) {
	a.in <- struct{}{}
	<-a.on
	return a.book.Frozen(i, v, h)
}

func TestCataloguesOfAPeerAreBoundedUntilTheyAreWritten(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d, l := w.dial(w.agent, "tcp"), w.lease()
	a := asked{w.node.ledger, make(chan struct{}), make(chan struct{})}
	w.node.ledger = a
	s := d.stream(protocol.CatalogID)
	require.NoError(t, protocol.WriteCatalogRequest(s, &protocol.CatalogRequest{Lease: [][]byte{l}}))
	<-a.in
	require.Equal(t, 1, w.node.door.Unread(d.host.ID()))
	close(a.on)
	entries, err := protocol.ReadCatalog(s)
	require.NoError(t, err)
	require.Len(t, entries, 7)
	require.NoError(t, s.Close())
	eventually(t, func() bool { return w.node.door.Unread(d.host.ID()) == 0 })
}

// TestLeaseThatGrantsTooMuch fills a lease with the names of as many commands as
// fit: what cannot be frozen or listed is refused, and is no fault of ours.
func TestLeaseThatGrantsTooMuch(t *testing.T) {
	t.Parallel()
	var commands []name.Command
	for a := 'a'; a <= 'b'; a++ {
		for b := 'a'; b <= 'z'; b++ {
			commands = append(commands, must(name.ParseCommand(string(a)+string(b))))
		}
	}
	d := descriptor()
	d.Contract.Commands = nil
	for _, c := range commands {
		d.Contract.Commands = append(d.Contract.Commands, argv.Command{
			Name: c, Effect: argv.EffectRead, Arguments: []string{"print", c.String(), strings.Repeat("long", 100)},
		})
	}
	sum := sha256.Sum256(must(argv.CanonicalJSON(d.Contract.Semantics())))
	d.Identity.ContractHash = "sha256:" + hex.EncodeToString(sum[:])
	all := "{" + strings.Repeat("%s: {}, ", len(commands)) + "}"
	args := make([]any, len(commands))
	for i, c := range commands {
		args[i] = c
	}
	rules, grants := "", []lease.Grant{}
	for i := range 34 {
		v := fmt.Sprintf("%d", 100+i)
		rules += "\n  - {name: r" + v + ", to: [agent], connector: fx, version: \"" + v + "\", commands: " + fmt.Sprintf(all, args...) + "}"
		grants = append(grants, lease.Grant{Connector: must(name.ParseConnectorKey("fx")), Version: must(name.ParseVersion(v)), Commands: commands})
	}
	w := newWorld(t, withPolicy(basicPolicy+rules))
	for _, g := range grants {
		v := d
		v.Identity.Version = g.Version
		w.host.Publish(v)
	}
	dial, l := w.dial(w.agent, "tcp"), w.lease(func(l *lease.Lease) { l.Grants = grants })
	s := w.start(l, "aa")
	s.Version = grants[0].Version
	dial.run(s).wantRefused(protocol.CodeUnsupported)
	s = w.start(l, "aa", "--nope")
	s.Version = grants[0].Version
	dial.run(s).wantRefused(protocol.CodeArgumentRejected) // what is denied hears why
	c := dial.stream(protocol.CatalogID)
	require.NoError(t, protocol.WriteCatalogRequest(c, &protocol.CatalogRequest{Lease: [][]byte{l}}))
	_, err := protocol.ReadCatalog(c)
	var refused *protocol.Refusal
	require.ErrorAs(t, err, &refused)
	require.Equal(t, protocol.CodeUnsupported, refused.Code)
	require.NoError(t, c.Close())
}
