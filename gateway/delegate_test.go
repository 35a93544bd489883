package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/multiformats/go-multiaddr"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lendcli/lend/gateway/client"
	"github.com/lendcli/lend/gateway/ledger"
	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/lease/revocation"
	"github.com/lendcli/lend/policy"
	"github.com/lendcli/lend/protocol"
	"github.com/lendcli/lend/protocol/name"
)

// family is a world in which the agent may pass its lease on to second, and second
// to third.
type family struct {
	*world
	second, third identity
}

const familyPolicy = `
policy: 1
issuers:
  owner: {id: ISSUER, connectors: any, max_depth: 2}
peers:
  agent: AGENT
  second: SECOND
  third: THIRD
allow:
  - name: all
    to: [agent, second, third]
    connector: fx
    version: "1.0.0"
    commands: {print: {}, cat: {}, exit: {}, sleep: {}, flood: {}}
`

func newFamily(t *testing.T, edits ...func(string) string) *family {
	t.Helper()
	f := &family{second: newIdentity(t), third: newIdentity(t)}
	f.world = newWorld(t, func(w *world, c *Config) { c.Policy = w.parse(f.rules(edits...)) })
	return f
}

func (f *family) rules(edits ...func(string) string) string {
	text := familyPolicy
	for _, e := range edits {
		text = e(text)
	}
	return strings.NewReplacer("SECOND", f.second.id.String(), "THIRD", f.third.id.String()).Replace(text)
}

func replacing(old, with string) func(string) string {
	return func(s string) string { return strings.Replace(s, old, with, 1) }
}

// root is the agent's lease, which may be passed on.
func (f *family) root(edit ...func(*lease.Lease)) [][]byte {
	return [][]byte{f.lease(append([]func(*lease.Lease){func(l *lease.Lease) { l.DepthLeft = 2 }}, edit...)...)}
}

func grantOf(commands ...string) lease.Grant {
	g := lease.Grant{Connector: must(name.ParseConnectorKey("fx")), Version: must(name.ParseVersion("1.0.0"))}
	for _, c := range commands {
		g.Commands = append(g.Commands, must(name.ParseCommand(c)))
	}
	return g
}

// passOn adds a link to a chain; it is as wide as its parent, but for edit.
func (f *family) passOn(chain [][]byte, by, to identity, edit ...func(*lease.Lease)) [][]byte {
	f.t.Helper()
	given := must(lease.Open(chain))
	given.ID, given.Holder, given.DepthLeft = lease.ID{}, to.id, given.DepthLeft-1
	for _, e := range edit {
		e(&given)
	}
	return must(lease.Delegate(chain, given, by.priv))
}

func (f *family) starts(chain [][]byte, command string, args ...string) *protocol.Start {
	s := f.start(nil, command, args...)
	s.Lease = chain
	return s
}

func (f *family) sdk(who identity, transport string, chain [][]byte) *client.Client {
	f.t.Helper()
	var addrs []multiaddr.Multiaddr
	for _, a := range f.node.Addrs() {
		if strings.Contains(a.String(), "/"+strings.Replace(transport, "quic", "quic-v1", 1)) {
			addrs = append(addrs, a)
		}
	}
	c, err := client.New(client.Config{Key: who.key, Addresses: addrs, Leases: client.Static(lease.File{Chain: chain}), Grease: 1})
	require.NoError(f.t, err)
	f.t.Cleanup(func() { _ = c.Close() })
	return c
}

// Three peers on one lease: each runs what every link above it grants, and nothing
// else.
func TestDelegation(t *testing.T) {
	t.Parallel()
	for _, transport := range transports() {
		t.Run(transport, func(t *testing.T) {
			f, ctx := newFamily(t), context.Background()
			root := f.root()
			pinned := func(l *lease.Lease) {
				l.Grants = []lease.Grant{grantOf("exit", "print", "sleep")}
				l.Grants[0].Pins = map[name.Parameter][]string{must(name.ParseParameter("size")): {"3", "5"}}
				l.Grants[0].Commands = grantOf("print").Commands
				l.Grants = append(l.Grants, grantOf("exit"))
				l.Purpose = "a part"
			}
			two := f.passOn(root, f.agent, f.second, pinned)
			three := f.passOn(two, f.second, f.third, func(l *lease.Lease) { l.Grants = []lease.Grant{grantOf("print")} })

			first, second, third := f.sdk(f.agent, transport, root), f.sdk(f.second, transport, two), f.sdk(f.third, transport, three)
			for _, c := range []*client.Client{first, second, third} {
				out, err := c.Command(ctx, "fx", "print", "--size=5").Output()
				require.NoError(t, err)
				require.Equal(t, pattern(5), out)
			}
			require.NoError(t, first.Command(ctx, "fx", "print", "--size=7").Run())
			for _, c := range []*client.Client{second, third} {
				require.Equal(t, protocol.CodeArgumentRejected, codeOf(t, c.Command(ctx, "fx", "print", "--size=7").Run()))
				require.Equal(t, protocol.CodeArgumentRejected, codeOf(t, c.Command(ctx, "fx", "print").Run()))
				require.Equal(t, protocol.CodeCommandUnknown, codeOf(t, c.Command(ctx, "fx", "sleep").Run()))
			}
			require.NoError(t, second.Command(ctx, "fx", "exit", "--code=0").Run())
			require.Equal(t, protocol.CodeCommandUnknown, codeOf(t, third.Command(ctx, "fx", "exit", "--code=0").Run()))

			// The gateway says which link it was, to whoever does not look itself.
			d := f.dial(f.third, transport)
			r := d.run(f.starts(three, "exit", "--code=0")).wantRefused(protocol.CodeCommandUnknown)
			require.Equal(t, "lease does not grant this command (link 2)", r.Public)

			for i, c := range []*client.Client{first, second, third} {
				entries, err := c.Catalog(ctx)
				require.NoError(t, err)
				var names []string
				for _, e := range entries {
					names = append(names, e.Command.String())
					if e.Command.String() == "print" {
						require.Equal(t, i > 0, strings.Contains(string(e.InputSchema), `"3"`) || strings.Contains(string(e.InputSchema), `[3,5]`), "%s", e.InputSchema)
					}
				}
				require.Equal(t, [][]string{{"cat", "exit", "flood", "print", "sleep"}, {"exit", "print"}, {"print"}}[i], names)
			}

			// What was recorded has the whole chain, and lives as long as its root.
			var started []ledger.Start
			require.NoError(t, f.ledger.Walk(func(e ledger.Entry) error {
				if e.Start != nil && e.Start.Holder == f.third.id {
					started = append(started, *e.Start)
				}
				return nil
			}))
			require.Len(t, started, 1)
			links := must(lease.ParseArmor(must(lease.Armor(three, nil, lease.AddressRule{})), lease.AddressRule{})).Links
			require.Len(t, started[0].Above, 2)
			for i, o := range started[0].Above {
				require.Equal(t, links[i].ID, lease.ID(o.Lease))
				require.Equal(t, links[i].Holder, o.Holder)
			}
			require.Equal(t, links[2].ID, lease.ID(started[0].Lease))
			require.Equal(t, links[0].NotAfter, started[0].LeaseNotAfter)
			require.Equal(t, f.issuer.id, started[0].Issuer)
			var audit map[string]any
			require.NoError(t, json.Unmarshal(started[0].Audit, &audit))
			require.Equal(t, `"a part"`, audit["purpose"])
		})
	}
}

func codeOf(t *testing.T, err error) protocol.Code {
	t.Helper()
	var refused *client.RefusedError
	require.ErrorAs(t, err, &refused)
	return refused.Code
}

// Chains that are not what they should be: nothing is looked at, and what may be
// told is told. spec: START-4
func TestBrokenChains(t *testing.T) {
	t.Parallel()
	for _, transport := range transports() {
		t.Run(transport, func(t *testing.T) {
			f := newFamily(t, replacing("max_depth: 2", "max_depth: 2}\n  other: {id: AGENT, connectors: any"), replacing("allow:", "limits: {denials: 10000}\nallow:"))
			b := f.count()
			root, wide := f.root(func(l *lease.Lease) { l.Grants = []lease.Grant{grantOf("exit")} }), f.root()
			two := f.passOn(root, f.agent, f.second)
			final := f.passOn(root, f.agent, f.second, func(l *lease.Lease) { l.DepthLeft = 0 })
			three := f.passOn(two, f.second, f.third)
			forged := func(parent [][]byte, by identity, edit func(*lease.Lease)) [][]byte {
				l := must(lease.Open(parent))
				l.ID, l.Issuer, l.Holder, l.Parent, l.DepthLeft = lease.NewID(), by.id, f.third.id, sha256.Sum256(parent[len(parent)-1]), 0
				edit(&l)
				return append(parent[:len(parent):len(parent)], must(lease.Seal(l, by.priv)))
			}
			same := func(*lease.Lease) {}
			for label, c := range map[string]struct {
				who   identity
				chain [][]byte
				code  protocol.Code
				text  string
			}{
				"spliced":        {f.second, [][]byte{wide[0], two[1]}, protocol.CodeLeaseDelegation, "another parent than the link above it (link 1)"},
				"dropped":        {f.third, [][]byte{three[0], three[2]}, protocol.CodeLeaseDelegation, "another parent than the link above it (link 1)"},
				"order":          {f.second, [][]byte{three[0], three[2], three[1]}, protocol.CodeLeaseDelegation, "another parent than the link above it (link 1)"},
				"twice":          {f.second, [][]byte{two[0], two[1], two[1]}, protocol.CodeLeaseDelegation, "two links have the same ID (link 2)"},
				"no-root":        {f.second, two[1:], protocol.CodeLeaseDelegation, "its root is missing"},
				"final":          {f.third, forged(final, f.second, same), protocol.CodeLeaseDelegation, "the link above it may not be passed on (link 2)"},
				"by-another":     {f.third, forged(root, f.second, same), protocol.CodeLeaseDelegation, "not passed on by the holder of the link above it (link 1)"},
				"invocation":     {f.third, forged(root, f.agent, func(l *lease.Lease) { l.Invocation = must(name.ParseInvocationID("task-2")) }), protocol.CodeLeaseDelegation, "another invocation than the link above it (link 1)"},
				"depth":          {f.third, forged(root, f.agent, func(l *lease.Lease) { l.DepthLeft = 2 }), protocol.CodeLeaseDelegation, "leaves no fewer links than the one above it (link 1)"},
				"back":           {f.agent, forged(two, f.second, func(l *lease.Lease) { l.Holder = f.agent.id }), protocol.CodeLeaseDelegation, "a holder is in the chain twice (link 2)"},
				"gateway":        {f.third, forged(root, f.agent, func(l *lease.Lease) { l.Gateway = f.third.id }), protocol.CodeDenied, ""},
				"other-holder":   {f.third, two, protocol.CodeDenied, ""},
				"middle":         {f.second, three, protocol.CodeDenied, ""},
				"first":          {f.agent, two, protocol.CodeDenied, ""},
				"untrusted-root": {f.second, forged([][]byte{f.seal(f.third, func(l *lease.Lease) { l.DepthLeft = 1 })}, f.agent, func(l *lease.Lease) { l.Holder = f.second.id }), protocol.CodeDenied, ""},
				"expired-link":   {f.third, forged(root, f.agent, func(l *lease.Lease) { l.NotAfter = l.NotBefore.Add(time.Millisecond) }), protocol.CodeLeaseExpired, "expired (link 1)"},
			} {
				if label == "expired-link" {
					f.clock.advance(time.Second)
				}
				r := f.dial(c.who, transport).run(f.starts(c.chain, "exit", "--code=0")).wantRefused(c.code)
				require.Contains(t, r.Public, c.text, label)
			}
			require.Zero(t, b.asked.Load(), "the ledger was asked")
			require.Zero(t, f.host.Resolves.Load(), "a route was looked at")
			f.dial(f.third, transport).run(f.starts(three, "exit", "--code=0")).finish() // all was well with it
		})
	}
}

// Passing on is off unless both the policy and the lease say so, and ends with
// either.
func TestDelegationIsOff(t *testing.T) {
	t.Parallel()
	for label, c := range map[string]struct {
		edit func(string) string
		text string
	}{
		"by-default":   {replacing(", max_depth: 2", ""), "passed on more often than the policy lets its issuer's leases (link 1)"},
		"zero":         {replacing("max_depth: 2", "max_depth: 0"), "passed on more often than the policy lets its issuer's leases (link 1)"},
		"once":         {replacing("max_depth: 2", "max_depth: 1"), "passed on more often than the policy lets its issuer's leases (link 2)"},
		"by-no-agent":  {replacing("max_depth: 2", "max_depth: 2, holders: [second, third]"), "passed on by a holder whom the issuer may not name"},
		"by-no-second": {replacing("max_depth: 2", "max_depth: 2, holders: [agent, third]"), "passed on by a holder whom the issuer may not name (link 1)"},
	} {
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			f := newFamily(t, c.edit)
			three := f.passOn(f.passOn(f.root(), f.agent, f.second), f.second, f.third)
			r := f.dial(f.third, "tcp").run(f.starts(three, "exit", "--code=0")).wantRefused(protocol.CodeLeaseDelegation)
			require.Contains(t, r.Public, c.text)
		})
	}
	t.Run("to-no-third", func(t *testing.T) {
		t.Parallel()
		f := newFamily(t, replacing("max_depth: 2", "max_depth: 2, holders: [agent, second]"))
		three := f.passOn(f.passOn(f.root(), f.agent, f.second), f.second, f.third)
		f.dial(f.third, "tcp").run(f.starts(three, "exit", "--code=0")).wantRefused(protocol.CodeDenied)
	})
	t.Run("nothing-for-the-third", func(t *testing.T) { // what the policy does not let it, no chain does
		t.Parallel()
		f := newFamily(t, replacing("to: [agent, second, third]", "to: [agent, second]"))
		three := f.passOn(f.passOn(f.root(), f.agent, f.second), f.second, f.third)
		f.dial(f.third, "tcp").run(f.starts(three, "exit", "--code=0")).wantRefused(protocol.CodePolicyDenied)
	})
}

// Nobody has more by passing on: starts count for every link.
func TestBudgetsOfAChain(t *testing.T) {
	t.Parallel()
	for _, transport := range transports() {
		t.Run(transport, func(t *testing.T) {
			f := newFamily(t)
			root := f.root(func(l *lease.Lease) { l.MaxConcurrent, l.MaxOperations = 2, 7 })
			two := f.passOn(root, f.agent, f.second, func(l *lease.Lease) { l.MaxConcurrent, l.MaxOperations = 1, 4 })
			again := f.passOn(root, f.agent, f.second, func(l *lease.Lease) { l.MaxConcurrent, l.MaxOperations = 2, 7 })
			three := f.passOn(two, f.second, f.third, func(l *lease.Lease) { l.MaxConcurrent, l.MaxOperations = 1, 4 })
			a, b, c := f.dial(f.agent, transport), f.dial(f.second, transport), f.dial(f.third, transport)

			running := c.run(f.starts(three, "sleep")).answer()
			require.NotNil(t, running.accepted)
			b.run(f.starts(two, "exit", "--code=0")).wantRefused(protocol.CodeLeaseAtOnce) // its only one is what the third runs
			other := b.run(f.starts(again, "sleep")).answer()
			require.NotNil(t, other.accepted)
			a.run(f.starts(root, "exit", "--code=0")).wantRefused(protocol.CodeLeaseAtOnce)
			f.stopAll()
			_, _ = running.lastCode(), other.lastCode()
			eventually(t, func() bool { return f.host.Running.Load() == 0 })

			exit := func(d *dialer, chain [][]byte) *remote { return d.run(f.starts(chain, "exit", "--code=0")) }
			exit(b, two).finish()
			exit(c, three).finish()
			exit(b, two).finish()
			exit(c, three).wantRefused(protocol.CodeLeaseExhausted) // of the four of the link above
			exit(b, two).wantRefused(protocol.CodeLeaseExhausted)
			exit(a, root).finish()
			exit(b, again).finish()
			for _, d := range []*remote{exit(a, root), exit(b, again), exit(b, f.passOn(root, f.agent, f.second))} {
				d.wantRefused(protocol.CodeLeaseExhausted)
			}
			require.Equal(t, 7, f.ledger.Operations(f.issuer.id, must(lease.Open(root)).ID))
		})
	}
}

func (f *family) stopAll() {
	for _, o := range f.node.Status().Operations {
		f.node.Stop(o.Key, true)
	}
}

// Whatever ends one link ends what runs under the chain, within a second.
func TestWhatEndsALinkEndsTheChain(t *testing.T) {
	t.Parallel()
	for _, transport := range transports() {
		for label, c := range map[string]struct {
			end  func(f *family, chain [][]byte)
			code protocol.Code
		}{
			"root-revoked": {func(f *family, chain [][]byte) {
				f.revoke(revocation.Entry{Lease: must(lease.Open(chain[:1])).ID})
			}, protocol.CodeLeaseRevoked},
			"link-revoked": {func(f *family, chain [][]byte) {
				f.revoke(revocation.Entry{Lease: must(lease.Open(chain[:2])).ID, Issuer: f.agent.id})
			}, protocol.CodeLeaseRevoked},
			"first-holder-revoked": {func(f *family, _ [][]byte) {
				f.revoke(revocation.Entry{Holder: f.agent.id, Issuer: f.issuer.id})
			}, protocol.CodeLeaseRevoked},
			"second-holder-revoked-by-the-root": {func(f *family, _ [][]byte) {
				f.revoke(revocation.Entry{Holder: f.second.id, Issuer: f.issuer.id})
			}, protocol.CodeLeaseRevoked},
			"root-dead": {func(f *family, _ [][]byte) { f.clock.advance(10*time.Minute + time.Second) }, protocol.CodeLeaseExpired},
			"no-depth": {func(f *family, _ [][]byte) {
				f.node.Reload(f.parse(f.rules(replacing("max_depth: 2", "max_depth: 1"))))
			}, protocol.CodePolicyChanged},
			"first-holder-gone": {func(f *family, _ [][]byte) {
				f.node.Reload(f.parse(f.rules(replacing("max_depth: 2", "max_depth: 2, holders: [second, third]"))))
			}, protocol.CodePolicyChanged},
		} {
			t.Run(transport+"/"+label, func(t *testing.T) {
				t.Parallel()
				f := newFamily(t)
				chain := f.passOn(f.passOn(f.root(), f.agent, f.second), f.second, f.third)
				d := f.dial(f.third, transport)
				start := f.starts(chain, "sleep")
				r := d.run(start).answer()
				require.NotNil(t, r.accepted)
				began := time.Now()
				c.end(f, chain)
				got := r.lastCode()
				require.Less(t, time.Since(began), 5*time.Second)
				require.Equal(t, c.code.String(), got.String())
				if c.code == protocol.CodeLeaseRevoked {
					d.run(f.attach(start, r.accepted.Token, 0)).wantRefused(protocol.CodeLeaseRevoked)
				}
				s := f.starts(chain, "exit", "--code=0")
				refused := d.run(s).answer().refused
				require.NotNil(t, refused)
			})
		}
	}
}

func (f *family) revoke(e revocation.Entry) {
	e.At = f.clock.now()
	f.revoked.set.Store(must(revocation.New(e)))
	f.node.Recheck()
}

// What is kept belongs to the last holder: the same operation ID of two holders is
// two operations, and neither sees the other's.
func TestHoldersOfAChainAreApart(t *testing.T) {
	t.Parallel()
	f := newFamily(t)
	root := f.root()
	two := f.passOn(root, f.agent, f.second)
	a, b := f.dial(f.agent, "tcp"), f.dial(f.second, "tcp")
	mine := f.starts(root, "print", "--size=3")
	a.run(mine).finish()
	theirs := f.starts(two, "print", "--size=3")
	theirs.Operation = mine.Operation
	b.run(f.attach(theirs, nil, 0)).wantRefused(protocol.CodeOperationUnknown)
	b.run(theirs).finish()
	require.Equal(t, int64(2), f.host.Starts.Load())
	b.run(theirs).finish()
	require.Equal(t, int64(2), f.host.Starts.Load(), "at most once, for each")

	early := f.starts(two, "print", "--size=3")
	reply, ok := f.cancel(b, early, two...).(*protocol.CancelReply)
	require.True(t, ok)
	require.Equal(t, protocol.OperationNotStarted, reply.State)
	b.run(f.attach(early, nil, 0)).wantRefused(protocol.CodeCancelled)
	b.run(early).wantRefused(protocol.CodeCancelled)
	a.run(f.attach(early, nil, 0)).wantRefused(protocol.CodeOperationUnknown)
	early.Lease = root
	a.run(early).finish()
	for _, who := range []identity{f.agent, f.second} {
		_, known, err := f.ledger.Frozen(f.issuer.id, must(name.ParseInvocationID("task-1")), who.id)
		require.NoError(t, err)
		require.True(t, known, fmt.Sprint(who.id))
	}
}

// Through the policy, too, a chain allows exactly what each of its links would
// allow by itself, whatever they say.
func TestPolicyUnderChains(t *testing.T) {
	t.Parallel()
	f := newFamily(t)
	p, size := f.node.policy.Load(), must(name.ParseParameter("size"))
	allowed := 0
	rapid.Check(t, func(rt *rapid.T) {
		peers := []identity{f.issuer, f.agent, f.second, f.third}
		n := rapid.IntRange(1, 3).Draw(rt, "links")
		var chain [][]byte
		for i := range n {
			chain = append(chain, f.seal(peers[i], func(l *lease.Lease) {
				l.Holder, l.DepthLeft, l.Grants = peers[i+1].id, 2-i, nil
				if i > 0 {
					l.Parent = sha256.Sum256(chain[i-1])
				}
				for _, c := range []string{"cat", "exit", "print"} {
					if g := grantOf(c); rapid.IntRange(0, 9).Draw(rt, c) < 8 {
						if c == "print" && rapid.Bool().Draw(rt, "pinned") {
							values := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"1", "2", "3"}), 1, 3, rapid.ID[string])
							g.Pins = map[name.Parameter][]string{size: values.Draw(rt, "sizes")}
						}
						l.Grants = append(l.Grants, g)
					}
				}
				if len(l.Grants) == 0 {
					l.Grants = []lease.Grant{grantOf("flood")}
				}
			}))
		}
		v, err := f.node.verifier.Verify(chain, peers[n].id)
		require.NoError(rt, err)
		command := rapid.SampledFrom([]string{"print", "exit", "cat", "flood"}).Draw(rt, "command")
		r := policy.Request{
			Issuer: v.Root, Peer: peers[n].id, Connector: must(name.ParseConnectorKey("fx")), Version: must(name.ParseVersion("1.0.0")),
			Command: must(name.ParseCommand(command)), Now: f.clock.now(), Stdin: command == "cat",
		}
		if command == "print" {
			r.Arguments = []string{"--size=" + rapid.SampledFrom([]string{"1", "2", "3"}).Draw(rt, "size")}
		}
		by := func(grant func(name.ConnectorKey, name.Version, name.Command) (lease.Grant, error)) bool {
			g, err := grant(r.Connector, r.Version, r.Command)
			r.Pins = g.Pins
			return err == nil && p.Decide(r, f.node.contracts).Allowed
		}
		each := true
		for i := range v.Links {
			each = each && by(v.Links[i].Grant)
		}
		require.Equal(rt, each, by(v.Grant))
		if each && n > 1 {
			allowed++
		}
	})
	require.Positive(t, allowed)
}
