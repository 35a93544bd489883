package gateway

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/gateway/internal/fakehost"
	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/localhost/route"
	"github.com/lendcli/lend/policy"
	"github.com/lendcli/lend/protocol"
	"github.com/lendcli/lend/protocol/name"
)

// catalogue asks what a lease may run now.
func (d *dialer) catalogue(l []byte) ([]protocol.CatalogEntry, error) {
	d.t.Helper()
	s := d.stream(protocol.CatalogID)
	require.NoError(d.t, protocol.WriteCatalogRequest(s, &protocol.CatalogRequest{Lease: [][]byte{l}}))
	defer func() { _ = s.Close() }()
	return protocol.ReadCatalog(s)
}

// A missing policy denies what is new and nothing else.
func TestSuspend(t *testing.T) {
	t.Parallel()
	for _, transport := range transports() {
		t.Run(transport, func(t *testing.T) {
			w := newWorld(t)
			d, l := w.dial(w.agent, transport), w.lease()
			s := w.start(l, "sleep")
			r := d.run(s).answer()
			w.node.Suspend()
			w.node.Suspend()
			for range 50 { // more than the denials that cost a penalty
				d.run(w.start(l, "print")).wantRefused(protocol.CodePolicyDenied)
			}
			_, err := d.catalogue(l)
			var refused *protocol.Refusal
			require.ErrorAs(t, err, &refused)
			require.Equal(t, protocol.CodePolicyDenied, refused.Code)
			require.Equal(t, int64(1), w.host.Starts.Load())

			w.node.Recheck()
			again := w.dial(w.agent, transport).run(w.attach(s, r.accepted.Token, 0)).answer()
			require.NotNil(t, again.accepted, "what runs goes on, for whoever dials")
			require.Equal(t, &protocol.CancelReply{State: protocol.OperationRunning}, w.cancel(d, s))
			require.Equal(t, protocol.CodeCancelled, again.finish().Code)

			w.node.Reload(w.parse(w.policy))
			d.run(w.start(l, "print", "--size=1")).finish()
			w.node.Suspend()
			w.node.Reload(w.parse(w.policy + "# another\n"))
			require.Len(t, w.recorded("policy.missing"), 2)
			require.Len(t, w.recorded("policy.restored"), 1)
			loaded := w.recorded("policy.loaded")
			require.Len(t, loaded, 1)
			require.Equal(t, "policy.yaml", loaded[0].Facts["file"])
			require.Equal(t, w.node.Status().PolicyDigest, loaded[0].Facts["digest"])
		})
	}
}

// The policy goes missing between the decision and the start.
func TestSuspendDuringAdmission(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.node.ledger = interrupted{w.node.ledger, func() { w.node.Suspend() }}
	w.dial(w.agent, "tcp").run(w.start(w.lease(), "sleep")).wantRefused(protocol.CodePolicyDenied)
	require.Zero(t, w.host.Starts.Load())
}

// What a reload says of issuers and leases ends what runs under them, too.
func TestReloadJudgesTheLease(t *testing.T) {
	t.Parallel()
	for label, edit := range map[string]func(string) string{
		"shorter leases": func(s string) string { return strings.Replace(s, "any}", "any, max_life: 5m}", 1) },
		"no such issuer": func(s string) string {
			return strings.Replace(s, "{id: ISSUER", "{id: "+newIdentity(t).id.String(), 1)
		},
		"issuer of other connectors": func(s string) string { return strings.Replace(s, "connectors: any", "connectors: [other]", 1) },
		"issuer of other holders":    func(s string) string { return strings.Replace(s, "any}", "any, holders: [other]}", 1) },
		"issuer until a past day":    func(s string) string { return strings.Replace(s, "any}", `any, until: "2020-01-01"}`, 1) },
		"another peer":               func(s string) string { return strings.Replace(s, "to: [agent]", "to: [other]", 1) },
		"another connector":          func(s string) string { return strings.Replace(s, "connector: fx", "connector: fy", 1) },
		"another version":            func(s string) string { return strings.Replace(s, `version: "1.0.0"`, `version: "1.0.1"`, 1) },
		"another connection": func(s string) string {
			return strings.Replace(s, "connector: fx", "connector: fx\n    connection: work", 1)
		},
	} {
		t.Run(label, func(t *testing.T) {
			text := strings.Replace(basicPolicy, "agent: AGENT", "agent: AGENT\n  other: "+newIdentity(t).id.String(), 1)
			w := newWorld(t, withPolicy(text))
			d := w.dial(w.agent, "tcp")
			r := d.run(w.start(w.lease(), "sleep")).answer()
			w.node.Reload(w.parse(text + "# harmless\n"))
			w.node.Reload(w.parse(edit(text)))
			require.Equal(t, protocol.CodePolicyChanged, r.finish().Code)
		})
	}
}

// A grant that says finish may outlive its lease, but not the policy.
func TestReloadAfterTheLease(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.dial(w.agent, "tcp")
	r := d.run(w.start(w.lease(func(l *lease.Lease) { l.Grants[0].Finish = true }), "sleep")).answer()
	w.clock.advance(time.Hour)
	w.node.Recheck()
	w.node.Reload(w.parse(w.policy))
	require.True(t, w.node.live.all()[0].running())
	require.NoError(t, w.node.live.all()[0].op.Context().Err(), "it goes on")
	w.node.Reload(w.parse(bytesReplace(basicPolicy, "sleep: {}, ", "")))
	require.Equal(t, protocol.CodePolicyChanged, r.finish().Code)
}

// The trust in an issuer ends by the clock, without a reload.
func TestTrustThatEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tomorrow := w.clock.now().Add(24 * time.Hour).UTC().Format(time.DateOnly)
	w.node.Reload(w.parse(strings.Replace(basicPolicy, "any}", `any, max_life: 24h, until: "`+tomorrow+`"}`, 1)))
	d := w.dial(w.agent, "tcp")
	r := d.run(w.start(w.lease(func(l *lease.Lease) { l.Grants[0].Finish = true }), "sleep")).answer()
	w.node.Recheck()
	require.NoError(t, w.node.live.all()[0].op.Context().Err())
	w.clock.advance(48 * time.Hour)
	w.node.Recheck()
	require.Equal(t, protocol.CodePolicyChanged, r.finish().Code)
}

// A workspace that leads elsewhere is another meaning: for what runs, for what has
// begun, and for a start that is under way.
func TestWorkspaceThatIsMoved(t *testing.T) {
	t.Parallel()
	at := func(path string) string {
		return strings.Replace(basicPolicy, "connector: fx", "connector: fx\n    workspace: site", 1) + "workspaces: {site: {path: " + path + "}}\n"
	}
	w := newWorld(t, withPolicy(at("/srv/a")))
	var mu sync.Mutex
	var got []route.StartRequest
	w.host.OnStart(func(_ context.Context, r route.StartRequest) error {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, r)
		return nil
	})
	d, l := w.dial(w.agent, "tcp"), w.lease()
	r := d.run(w.start(l, "sleep")).answer()
	w.node.Reload(w.parse(at("/srv/b")))
	require.Equal(t, protocol.CodePolicyChanged, r.finish().Code)
	d.run(w.start(l, "sleep")).wantRefused(protocol.CodePolicyDenied)
	shown, err := d.catalogue(l)
	require.NoError(t, err)
	require.Empty(t, shown, "what would be refused is not shown")

	fresh := w.lease(func(l *lease.Lease) { l.Invocation = must(name.ParseInvocationID("task-2")) })
	d.run(w.start(fresh, "exit", "--code=0")).finish()
	shown, err = d.catalogue(fresh)
	require.NoError(t, err)
	require.Len(t, shown, 7)
	mu.Lock()
	defer mu.Unlock()
	require.Len(t, got, 2)
	require.Equal(t, "site", got[0].Workspace)
	require.Len(t, got[0].Place, 64)
	require.NotEqual(t, got[0].Place, got[1].Place, "the host can tell")
	_, err = w.node.port.prepare(t.Context(), &capability{
		holder: w.agent.id, route: got[0].Identity, frozen: []byte("x"), workspace: must(name.ParseLabel("site")),
	})
	require.ErrorIs(t, err, errNoCapability, "a workspace without its place")
}

// An operation never runs with other limits than those that it was decided with.
func TestLimitsThatChangeDuringAdmission(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withPolicy(limited("stdout: 2MiB", "stderr: 1MiB")))
	w.node.ledger = interrupted{w.node.ledger, func() {
		w.node.Reload(w.parse(limited("stdout: 1MiB", "stderr: 1MiB")))
	}}
	d, l := w.dial(w.agent, "tcp"), w.lease()
	s := w.start(l, "exit", "--code=0")
	require.Positive(t, d.run(s).wantRefused(protocol.CodeBusy).RetryAfter)
	require.Zero(t, w.host.Starts.Load())
	r := d.run(s).answer()
	require.Equal(t, uint64(1<<20), r.accepted.Limits.Stdout)
	r.finish()
}

// What ignores the polite stop is killed, so that narrowing and revocation act within
// a second; an expiry leaves it its grace.
func TestStubbornWorkEndsWithinASecond(t *testing.T) {
	t.Parallel()
	for label, act := range map[string]func(*world){
		"policy":     func(w *world) { w.node.Reload(w.parse(bytesReplace(basicPolicy, "sleep: {}, ", ""))) },
		"revocation": func(w *world) { w.revokeAll(); w.node.Recheck() },
	} {
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			took := time.Hour
			for range 3 { // of a busy machine, the best
				w := newWorld(t)
				w.host.SetProgram("sleep", func(c *fakehost.Child) route.Exit {
					<-c.Killed
					return route.Exit{Signal: "SIGKILL"}
				})
				r := w.dial(w.agent, "tcp").run(w.start(w.lease(), "sleep")).answer()
				began := time.Now()
				act(w)
				for range 3 { // asking again must not put it off
					w.node.Recheck()
				}
				r.finish()
				require.GreaterOrEqual(t, time.Since(began), stopBudget/2, "it was asked first")
				if took = min(took, time.Since(began)); took < time.Second {
					break
				}
			}
			require.Less(t, took, time.Second)
		})
	}
}

// Many reloads at once leave door and decisions with the same policy.
func TestReloadsAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var policies []*policy.Policy
	for _, n := range []string{"1", "2", "3", "4"} {
		policies = append(policies, w.parse(strings.Replace(basicPolicy, "allow:", "limits: {operations: 1000, operations_per_peer: "+n+"00}\nallow:", 1)))
	}
	for range 20 {
		var all sync.WaitGroup
		for _, p := range policies {
			all.Go(func() { w.node.Reload(p) })
		}
		all.Go(w.node.Suspend)
		all.Wait()
		w.node.Reload(w.node.policy.Load())
		require.Equal(t, 4*w.node.Status().Limits.OperationsPerPeer, w.node.door.Transport().StreamsPerPeer)
	}
}

// The gateway says when it was there.
func TestLifeIsRecorded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	started := w.recorded("gateway.started")
	require.Len(t, started, 1)
	require.Equal(t, map[string]string{"peer": w.gateway.id.String(), "policy": w.node.Status().PolicyDigest}, started[0].Facts)
	require.NoError(t, w.node.Close())
	require.Len(t, w.recorded("gateway.stopped"), 1)
}
