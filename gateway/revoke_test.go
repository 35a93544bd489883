package gateway

import (
	"context"
	"crypto/sha256"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/gateway/ledger"
	"github.com/lendcli/lend/gateway/operation"
	"github.com/lendcli/lend/gateway/revocations"
	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/lease/revocation"
	"github.com/lendcli/lend/protocol"
)

// stored is a world whose revocations are in a file, with an owner's key and a
// second issuer.
type stored struct {
	*world
	owner, other identity
	file, mark   string
	store        *revocations.Store
}

func newStored(t *testing.T) *stored {
	t.Helper()
	s := &stored{owner: newIdentity(t), other: newIdentity(t)}
	dir := t.TempDir()
	s.file, s.mark = filepath.Join(dir, "revocations"), filepath.Join(dir, "lockdown")
	require.NoError(t, revocations.Create(s.file))
	s.store = revocations.Open(s.file, s.mark)
	s.world = newWorld(t, func(w *world, c *Config) {
		c.Policy = w.parse(strings.Replace(basicPolicy, "connectors: any}\n", "connectors: any}\n  second: {id: "+s.other.id.String()+", connectors: any}\n", 1))
		c.Revocations, c.Owner = s.store, s.owner.id
	})
	return s
}

// sign seals what by revokes on this gateway.
func (s *stored) sign(by identity, e revocation.Entry, edit ...func(*revocation.Statement)) []byte {
	s.t.Helper()
	st := revocation.Statement{
		ID: lease.NewID(), Issuer: by.id, Gateway: s.gateway.id, At: s.clock.now().UTC().Truncate(time.Millisecond), Entry: e,
	}
	for _, e := range edit {
		e(&st)
	}
	return must(revocation.Seal(st, by.priv))
}

// change makes a change of the store as the owner, and returns what it has stopped.
func (s *stored) change(do func() error) int {
	s.t.Helper()
	stopped, err := s.node.Revoke(func() (string, []revocation.Entry, error) { return "owner", nil, do() })
	require.NoError(s.t, err)
	return stopped
}

func (d *dialer) revoke(envelope []byte) protocol.ControlReply {
	d.t.Helper()
	c := d.stream(protocol.ControlID)
	require.NoError(d.t, protocol.WriteControlRequest(c, &protocol.RevokeRequest{Envelope: envelope}))
	reply, err := protocol.ReadControlReply(c)
	require.NoError(d.t, err)
	_ = c.Close()
	return reply
}

func (d *dialer) wantNotRevoked(code protocol.Code, envelope []byte) {
	d.t.Helper()
	refused, ok := d.revoke(envelope).(*protocol.Refused)
	require.True(d.t, ok, "it was accepted")
	require.Equal(d.t, code.String(), refused.Code.String())
}

// events returns the facts of the recorded events of one name.
func (w *world) events(event string) (out []map[string]string) {
	w.t.Helper()
	require.NoError(w.t, w.ledger.Walk(func(e ledger.Entry) error {
		if e.Event != nil && e.Event.Name == event {
			out = append(out, e.Event.Facts)
		}
		return nil
	}))
	return out
}

// Every form of a revocation that travels ends what runs within a second, refuses
// what comes after, is recorded, and holds after a restart.
func TestSignedRevocationEndsWhatRuns(t *testing.T) {
	t.Parallel()
	for _, transport := range transports() {
		for form, entry := range map[string]func(s *stored, l lease.Lease) revocation.Entry{
			"lease":      func(_ *stored, l lease.Lease) revocation.Entry { return revocation.Entry{Lease: l.ID} },
			"invocation": func(_ *stored, l lease.Lease) revocation.Entry { return revocation.Entry{Invocation: l.Invocation} },
			"holder":     func(_ *stored, l lease.Lease) revocation.Entry { return revocation.Entry{Holder: l.Holder} },
			"issuer":     func(s *stored, _ lease.Lease) revocation.Entry { return revocation.Entry{Issuer: s.issuer.id} },
			"issued-before": func(_ *stored, l lease.Lease) revocation.Entry {
				return revocation.Entry{IssuedBefore: l.IssuedAt.Add(time.Millisecond)}
			},
		} {
			for _, by := range []string{"issuer", "owner"} {
				t.Run(transport+"/"+form+"/"+by, func(t *testing.T) {
					t.Parallel()
					s := newStored(t)
					sealed := s.lease()
					l := must(lease.Open([][]byte{sealed}))
					d := s.dial(s.agent, transport)
					run := d.run(s.start(sealed, "sleep"))
					run.answer()
					signer := s.issuer
					if by == "owner" {
						signer = s.owner
					}
					began := time.Now()
					require.Equal(t, &protocol.RevokeReply{Stopped: 1}, d.revoke(s.sign(signer, entry(s, l))))
					require.Equal(t, protocol.CodeLeaseRevoked, run.finish().Code)
					require.Less(t, time.Since(began), time.Second)
					d.run(s.start(sealed, "print")).wantRefused(protocol.CodeLeaseRevoked)
					require.True(t, revocations.Open(s.file, s.mark).Revoked(lease.Subject{
						Lease: l.ID, Invocation: l.Invocation, Holder: l.Holder, Issuer: l.Issuer, IssuedAt: l.IssuedAt,
					}), "it is on disk")
					added := s.events("revocation.added")
					require.Len(t, added, 1)
					require.Equal(t, signer.id.String(), added[0]["by"])
					require.NotEmpty(t, added[0][form])
				})
			}
		}
	}
}

func TestIssuerRevokesItsOwnOnly(t *testing.T) {
	t.Parallel()
	s := newStored(t)
	d := s.dial(s.agent, "tcp")
	run := d.run(s.start(s.lease(), "sleep"))
	run.answer()
	all := revocation.Entry{Holder: s.agent.id}
	require.Equal(t, &protocol.RevokeReply{}, d.revoke(s.sign(s.other, all)), "its own, of which there are none")
	d.wantNotRevoked(protocol.CodePolicyDenied, s.sign(s.other, revocation.Entry{Holder: s.agent.id, Issuer: s.issuer.id}))
	d.run(s.start(s.lease(), "print", "--size=1")).finish()
	d.run(s.start(s.seal(s.other), "print", "--size=1")).wantRefused(protocol.CodeLeaseRevoked)
	require.Equal(t, &protocol.RevokeReply{Stopped: 1}, d.revoke(s.sign(s.owner, all)))
	require.Equal(t, protocol.CodeLeaseRevoked, run.finish().Code)
	require.Len(t, s.store.Entries(), 1, "the owner's covers the issuer's")
}

// What is not accepted tells a peer nothing, costs it patience, and keeps nothing.
func TestRevocationsThatAreNotAccepted(t *testing.T) {
	t.Parallel()
	all := revocation.Entry{Holder: newIdentity(t).id}
	for label, c := range map[string]struct {
		envelope func(s *stored) []byte
		code     protocol.Code
	}{
		"garbage":       {func(*stored) []byte { return []byte("hello") }, protocol.CodeDenied},
		"lease":         {func(s *stored) []byte { return s.lease() }, protocol.CodeDenied},
		"stranger":      {func(s *stored) []byte { return s.sign(s.agent, all) }, protocol.CodeDenied},
		"gateway's own": {func(s *stored) []byte { return s.sign(s.gateway, all) }, protocol.CodeDenied},
		"other gateway": {func(s *stored) []byte {
			return s.sign(s.owner, all, func(st *revocation.Statement) { st.Gateway = s.agent.id })
		}, protocol.CodeDenied},
		"future": {func(s *stored) []byte {
			return s.sign(s.owner, all, func(st *revocation.Statement) { st.At = st.At.Add(time.Minute) })
		}, protocol.CodePolicyDenied},
		"old": {func(s *stored) []byte {
			return s.sign(s.owner, all, func(st *revocation.Statement) { st.At = st.At.Add(-25 * time.Hour) })
		}, protocol.CodePolicyDenied},
	} {
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			s := newStored(t)
			s.dial(s.agent, "quic").wantNotRevoked(c.code, c.envelope(s))
			require.Empty(t, s.store.Entries())
			require.Empty(t, s.events("revocation.added"))
		})
	}
	t.Run("replay", func(t *testing.T) {
		t.Parallel()
		s := newStored(t)
		d, envelope := s.dial(s.agent, "tcp"), s.sign(s.issuer, all)
		for range 3 {
			require.Equal(t, &protocol.RevokeReply{}, d.revoke(envelope))
		}
		require.Len(t, s.store.Entries(), 1)
		require.Len(t, s.events("revocation.added"), 1)
	})
	t.Run("no registry", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		s := &stored{world: w, owner: newIdentity(t)}
		w.dial(w.agent, "tcp").wantNotRevoked(protocol.CodeUnsupported, s.sign(s.owner, all))
	})
	t.Run("issuer that is no longer listed", func(t *testing.T) {
		t.Parallel()
		s := newStored(t)
		d := s.dial(s.agent, "tcp")
		s.node.Reload(s.parse(basicPolicy))
		d.wantNotRevoked(protocol.CodeDenied, s.sign(s.other, all))
	})
}

// A revoked holder attaches to nothing, with its token or without, and learns no
// end; the owner of a later lease does.
func TestRevokedHolderLooksNothingUp(t *testing.T) {
	t.Parallel()
	for _, transport := range transports() {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			s := newStored(t)
			d := s.dial(s.agent, transport)
			first := s.lease()
			one := s.start(first, "print", "--size=4")
			d.run(one).finish()
			s.clock.advance(time.Second)
			cut := s.clock.now()
			s.clock.advance(time.Second)
			two := s.start(s.lease(), "print", "--size=5")
			d.run(two).finish()
			eventually(t, func() bool { return len(s.node.Status().Operations) == 0 })
			status := func(q *protocol.Start) protocol.ControlReply {
				c := d.stream(protocol.ControlID)
				require.NoError(t, protocol.WriteControlRequest(c, &protocol.StatusRequest{OperationKey: s.key(q)}))
				return must(protocol.ReadControlReply(c))
			}
			require.IsType(t, &protocol.StatusReply{}, status(one))
			_, err := s.store.Add(s.clock.now(), revocation.Entry{Holder: s.agent.id, IssuedBefore: cut}.Kept(s.clock.now()))
			require.NoError(t, err)
			require.IsType(t, &protocol.Refused{}, status(one))
			require.IsType(t, &protocol.Refused{}, s.cancel(d, one))
			d.run(s.attach(one, nil, 0)).wantRefused(protocol.CodeLeaseRevoked)
			require.IsType(t, &protocol.StatusReply{}, status(two), "it was issued later")
			require.Equal(t, uint64(5), d.run(s.attach(two, nil, 0)).finish().Stdout)

			three := s.start(s.lease(), "sleep") // that ends by it, and is not acknowledged yet
			run := d.run(three)
			run.answer()
			require.Equal(t, 1, s.change(func() error {
				_, err := s.store.Add(s.clock.now(), revocation.Entry{Holder: s.agent.id}.Kept(s.clock.now()))
				return err
			}))
			run.until(func() bool { return run.exit != nil })
			require.Len(t, s.node.Status().Operations, 1)
			require.IsType(t, &protocol.Refused{}, status(three))
			d.run(s.attach(three, run.accepted.Token, 0)).wantRefused(protocol.CodeLeaseRevoked)
			_ = run.stream.Reset()
		})
	}
}

// A lockdown denies every entry and ends all that runs within a second, for
// whatever grace it has, until the owner unlocks; also over restarts.
func TestLockdown(t *testing.T) {
	t.Parallel()
	for _, transport := range transports() {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			s := newStored(t)
			d, l := s.dial(s.agent, transport), s.lease()
			ended := s.start(l, "print", "--size=1")
			d.run(ended).finish()
			first := s.start(l, "sleep")
			run := d.run(first)
			run.answer()
			began, running := time.Now(), s.node.live.get(ledger.Key{
				Issuer: s.issuer.id, Invocation: s.key(first).Invocation, Holder: s.agent.id, Operation: first.Operation,
			})
			require.Equal(t, 1, s.change(func() error { return s.store.Lock(s.clock.now(), "test") }))
			require.Equal(t, operation.CauseOwner, context.Cause(running.op.Context()), "at once, not when somebody looks")
			require.Equal(t, protocol.CodeOwnerStopped, run.finish().Code)
			require.Less(t, time.Since(began), time.Second)

			locked := func() {
				t.Helper()
				d.run(s.start(l, "print")).wantRefused(protocol.CodeGatewayLocked)
				d.run(s.attach(first, run.accepted.Token, 0)).wantRefused(protocol.CodeGatewayLocked)
				d.run(s.attach(ended, nil, 0)).wantRefused(protocol.CodeGatewayLocked)
				c := d.stream(protocol.CatalogID)
				require.NoError(t, protocol.WriteCatalogRequest(c, &protocol.CatalogRequest{Lease: [][]byte{l}}))
				_, err := protocol.ReadCatalog(c)
				var refused *protocol.Refusal
				require.ErrorAs(t, err, &refused)
				require.Equal(t, protocol.CodeGatewayLocked, refused.Code)
				require.IsType(t, &protocol.Refused{}, s.cancel(d, s.start(l, "print"), l))
			}
			locked()
			require.Equal(t, []map[string]string{{"why": "test"}}, s.events("lockdown.on"))
			require.Zero(t, s.change(func() error { require.True(t, must(s.store.Unlock())); return nil }))
			d.run(s.start(l, "print", "--size=1")).finish()
			require.Len(t, s.events("lockdown.off"), 1)

			require.NoError(t, os.WriteFile(s.mark, nil, 0o600)) // by another process
			eventually(t, func() bool { return s.store.Lockdown() != nil })
			locked()
			eventually(t, func() bool { return len(s.events("lockdown.on")) == 2 })
		})
	}
}

// A store that can no longer be read ends and denies all, once somebody looks,
// which is twice a second.
func TestStoreThatVanishes(t *testing.T) {
	t.Parallel()
	s := newStored(t)
	d, l := s.dial(s.agent, "tcp"), s.lease()
	run := d.run(s.start(l, "sleep"))
	run.answer()
	require.NoError(t, os.Remove(s.file))
	began := time.Now()
	require.Equal(t, protocol.CodeLeaseRevoked, run.finish().Code)
	require.Less(t, time.Since(began), 2*time.Second)
	d.run(s.start(l, "print")).wantRefused(protocol.CodeGatewayLocked)
	d.wantNotRevoked(protocol.CodeGatewayLocked, s.sign(s.owner, revocation.Entry{Holder: s.agent.id}))
	eventually(t, func() bool { return len(s.events("degraded")) == 1 })
	s.change(func() error {
		_, err := s.store.Renew(s.clock.now().Add(-time.Minute))
		return err
	})
	require.Equal(t, []map[string]string{{"what": "revocations"}}, s.events("recovered"))
	d.run(s.start(s.lease(), "print", "--size=1")).finish()
}

// A stranger, who is here for a moment only, may carry what a listed issuer signed.
func TestStrangerCarriesARevocation(t *testing.T) {
	t.Parallel()
	s := newStored(t)
	s.node.Reload(s.parse(strings.Replace(basicPolicy, "connectors: any}", "connectors: any, holders: any}", 1)))
	stranger := s.dial(newIdentity(t), "quic")
	require.Equal(t, &protocol.RevokeReply{}, stranger.revoke(s.sign(s.issuer, revocation.Entry{Holder: s.agent.id})))
	s.dial(s.agent, "tcp").run(s.start(s.lease(), "print")).wantRefused(protocol.CodeLeaseRevoked)
	stranger.wantNotRevoked(protocol.CodeDenied, s.sign(newIdentity(t), revocation.Entry{Holder: s.agent.id}))
}

// Who has passed a lease on takes it back, and nothing that others have signed, as long
// as the policy lets leases be passed on.
func TestWhoPassedALeaseOnRevokesIt(t *testing.T) {
	t.Parallel()
	for _, transport := range transports() {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			s := newStored(t)
			middle, last := newIdentity(t), newIdentity(t)
			text := strings.NewReplacer(
				"connectors: any}", "connectors: any, max_depth: 1}",
				"peers:\n", "peers:\n  middle: "+middle.id.String()+"\n  last: "+last.id.String()+"\n",
				"to: [agent]", "to: [agent, middle, last]",
			).Replace(basicPolicy)
			s.node.Reload(s.parse(text))
			root := s.lease(func(l *lease.Lease) { l.Holder, l.DepthLeft = middle.id, 1 })
			given := must(lease.Open([][]byte{root}))
			given.ID, given.Holder, given.DepthLeft = lease.ID{}, last.id, 0
			chain := must(lease.Delegate([][]byte{root}, given, middle.priv))
			link := must(lease.Open(chain))
			middleDials, lastDials := s.dial(middle, transport), s.dial(last, transport)
			start := s.start(nil, "sleep")
			start.Lease = chain
			run := lastDials.run(start)
			run.answer()
			require.NotNil(t, run.accepted, "%v", run.refused)
			own := middleDials.run(s.start(root, "sleep"))
			own.answer()
			require.NotNil(t, own.accepted, "%v", own.refused)

			entry := revocation.Entry{Lease: link.ID, Issuer: middle.id}
			middleDials.wantNotRevoked(protocol.CodePolicyDenied, s.sign(middle, revocation.Entry{Lease: given.ID, Issuer: s.issuer.id}))
			require.Equal(t, &protocol.RevokeReply{}, lastDials.revoke(s.sign(last, revocation.Entry{Lease: link.ID})), "it has signed nothing")
			middleDials.wantNotRevoked(protocol.CodeDenied, s.sign(newIdentity(t), entry))
			s.node.Reload(s.parse(strings.Replace(text, "max_depth: 1", "max_depth: 0", 1)))
			middleDials.wantNotRevoked(protocol.CodeDenied, s.sign(middle, entry))
			s.node.Reload(s.parse(text))

			start = s.start(nil, "sleep")
			start.Lease = chain
			run = lastDials.run(start)
			run.answer()
			require.NotNil(t, run.accepted, "%v", run.refused)
			require.Equal(t, &protocol.RevokeReply{Stopped: 1}, middleDials.revoke(s.sign(middle, entry)))
			require.Equal(t, protocol.CodeLeaseRevoked, run.finish().Code)
			lastDials.run(start).wantRefused(protocol.CodeLeaseRevoked)
			require.Equal(t, 1, int(s.host.Running.Load()), "what it runs itself goes on")
		})
	}
}

// One link of a chain that is revoked ends what runs under the chain.
func TestRevokedLinkEndsWhatRuns(t *testing.T) {
	t.Parallel()
	s := newStored(t)
	policy := strings.Replace(basicPolicy, "connectors: any}", "connectors: any, holders: any, max_depth: 1}", 1)
	s.node.Reload(s.parse(policy))
	middle := newIdentity(t)
	root := s.lease(func(l *lease.Lease) { l.Holder, l.DepthLeft = middle.id, 1 })
	opened := must(lease.Open([][]byte{root}))
	link := s.seal(middle, func(l *lease.Lease) {
		l.IssuedAt, l.NotBefore, l.NotAfter, l.Parent = opened.IssuedAt, opened.NotBefore, opened.NotAfter, sha256.Sum256(root)
		l.Grants = opened.Grants
	})
	d := s.dial(s.agent, "tcp")
	start := s.start(root, "sleep")
	start.Lease = [][]byte{root, link}
	run := d.run(start)
	run.answer()
	require.NotNil(t, run.accepted, "%v", run.refused)
	require.Equal(t, &protocol.RevokeReply{Stopped: 1}, d.revoke(s.sign(s.issuer, revocation.Entry{Lease: opened.ID})))
	require.Equal(t, protocol.CodeLeaseRevoked, run.finish().Code)
	eventually(t, func() bool { return len(s.node.Status().Operations) == 0 })
	d.run(s.attach(start, nil, 0)).wantRefused(protocol.CodeLeaseRevoked)
}
