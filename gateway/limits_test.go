package gateway

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/gateway/internal/fakehost"
	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/localhost/route"
	"github.com/lendcli/lend/protocol"
)

// limited is the basic policy with limits of the file and of its rule.
func limited(file, rule string) string {
	return strings.Replace(basicPolicy, "allow:", "limits: {"+file+"}\nallow:", 1) + "    limits: {" + rule + "}\n"
}

func TestLostLinkKillsWhereThePolicySaysSo(t *testing.T) {
	t.Parallel()
	for _, transport := range transports() {
		t.Run(transport, func(t *testing.T) {
			w := newWorld(t, withPolicy(limited("stdout: 1MiB", "on_disconnect: kill")))
			d, l := w.dial(w.agent, transport), w.lease()
			d.run(w.start(l, "print", "--size=100")).finish() // who stays gets all
			s := w.start(l, "sleep")
			r := d.run(s).answer()
			require.Zero(t, r.accepted.Limits.Detached, "the caller is told")
			require.NoError(t, r.stream.Reset())
			eventually(t, func() bool { return w.host.Running.Load() == 0 })
			end := d.run(w.attach(s, nil, 0)).answer()
			end.until(func() bool { return end.exit != nil })
			require.Equal(t, protocol.CodePeerGone, end.exit.Code)
		})
	}
}

// Who sends more than its window is not read, and is missed all the same when it goes,
// whether its connection goes with it or not.
func TestLostLinkBehindInputThatIsNotRead(t *testing.T) {
	t.Parallel()
	for _, transport := range transports() {
		for _, how := range []string{"stream", "connection"} {
			t.Run(transport+"/"+how, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, withPolicy(limited("stdout: 1MiB", "on_disconnect: kill")))
				d := w.dial(w.agent, transport)
				w.host.SetProgram("cat", programs()["sleep"])
				r := d.run(w.start(w.lease(), "cat")).answer()
				require.NotNil(t, r.accepted)
				sent := make(chan error, 1)
				go func() {
					b := make([]byte, protocol.MaxData)
					for offset := uint64(0); ; offset += protocol.MaxData {
						if err := r.WriteFrame(&protocol.Data{Offset: offset, Payload: b}); err != nil {
							sent <- err
							return
						}
					}
				}()
				eventually(t, func() bool { return w.node.Status().Memory >= protocol.MaxWindow-protocol.MaxData })
				if how == "stream" {
					require.NoError(t, r.stream.Reset())
				} else {
					require.NoError(t, d.host.Network().ClosePeer(d.to))
				}
				require.Error(t, <-sent)
				eventually(t, func() bool { return w.host.Running.Load() == 0 })
			})
		}
	}
}

// The lower of what was frozen and what is current holds, and the catalogue tells it.
func TestGraceIsTheLowerOfFrozenAndCurrent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withPolicy(limited("on_disconnect: {keep: 5m}", "on_disconnect: {keep: 3m}")))
	d, l := w.dial(w.agent, "tcp"), w.lease()
	grace := func() time.Duration {
		r := d.run(w.start(l, "exit", "--code=0")).answer()
		r.finish()
		return r.accepted.Limits.Detached
	}
	require.Equal(t, 3*time.Minute, grace())
	w.node.Reload(w.parse(limited("on_disconnect: {keep: 5m}", "on_disconnect: {keep: 4m}")))
	require.Equal(t, 3*time.Minute, grace(), "frozen")
	w.node.Reload(w.parse(limited("on_disconnect: {keep: 2m}", "stdout: 1MiB")))
	require.Equal(t, 2*time.Minute, grace(), "current")
	s := d.stream(protocol.CatalogID)
	require.NoError(t, protocol.WriteCatalogRequest(s, &protocol.CatalogRequest{Lease: [][]byte{l}}))
	entries, err := protocol.ReadCatalog(s)
	require.NoError(t, err)
	for _, e := range entries {
		require.Equal(t, 2*time.Minute, e.Limits.Detached)
	}
}

func TestLimitsOfProcessesReachTheRuntime(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withPolicy(limited("processes: 90, memory: 2GiB", "processes: 20, memory: 1GiB")))
	got := make(chan route.Limits, 2)
	w.host.OnStart(func(_ context.Context, r route.StartRequest) error { got <- r.Limits; return nil })
	w.host.SetProgram("exit", func(*fakehost.Child) route.Exit { return route.Exit{Signal: "SIGKILL", Limited: true} })
	d, l := w.dial(w.agent, "tcp"), w.lease()
	exit := d.run(w.start(l, "exit", "--code=0")).finish()
	require.Equal(t, protocol.CodeResourceLimit, exit.Code)
	require.Equal(t, "SIGKILL", exit.Signal)
	require.Equal(t, route.Limits{Processes: 20, Memory: 1 << 30}, <-got)
	w.node.Reload(w.parse(limited("processes: 10", "stdout: 1MiB")))
	d.run(w.start(l, "exit", "--code=0")).finish()
	require.Equal(t, route.Limits{Processes: 10, Memory: 1 << 30}, <-got, "the lower of frozen and current")
}

// bad is a lease that verifies for nobody here.
func (w *world) bad() []byte {
	b := w.lease()
	b[len(b)-1] ^= 1
	return b
}

// A peer that keeps showing leases which are worth nothing waits, with a good one
// too, and is told for how long; nobody else waits. spec: REFUSE-4
func TestPenalty(t *testing.T) {
	t.Parallel()
	for _, transport := range transports() {
		t.Run(transport, func(t *testing.T) {
			friend := newIdentity(t)
			text := strings.NewReplacer("agent: AGENT", "agent: AGENT\n  friend: "+friend.id.String(), "[agent]", "[agent, friend]")
			w := newWorld(t, withPolicy(text.Replace(limited("denials: 1", "stdout: 1MiB"))))
			d, good := w.dial(w.agent, transport), w.lease()
			d.run(w.start(w.bad(), "exit", "--code=0")).wantRefused(protocol.CodeDenied)
			refused := d.run(w.start(good, "exit", "--code=0")).wantRefused(protocol.CodeRateLimited)
			began := time.Now()
			require.Greater(t, refused.RetryAfter, 4*time.Second)
			require.LessOrEqual(t, refused.RetryAfter, 5*time.Second)
			require.Len(t, w.node.Status().Penalties, 1)
			require.Equal(t, w.agent.id, w.node.Status().Penalties[0].Peer)

			s := d.stream(protocol.CatalogID)
			require.NoError(t, protocol.WriteCatalogRequest(s, &protocol.CatalogRequest{Lease: [][]byte{good}}))
			_, err := protocol.ReadCatalog(s)
			var told *protocol.Refusal
			require.ErrorAs(t, err, &told)
			require.Equal(t, protocol.CodeRateLimited, told.Code)

			other := w.dial(friend, transport) // from the same address
			mine := w.lease(func(l *lease.Lease) { l.Holder = friend.id })
			r := other.run(w.start(mine, "exit", "--code=0"))
			r.until(func() bool { return r.exit != nil || r.refused != nil })
			require.Nil(t, r.refused)

			wait := time.NewTimer(refused.RetryAfter - time.Since(began))
			<-wait.C
			d.run(w.start(good, "exit", "--code=0")).finish()
			require.Empty(t, w.node.Status().Penalties)
		})
	}
}

// What runs can be followed and cancelled under a penalty; nothing new starts.
func TestPenaltyDoesNotTouchWhatRuns(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withPolicy(limited("denials: 1", "stdout: 1MiB")))
	d, good := w.dial(w.agent, "tcp"), w.lease()
	s := w.start(good, "sleep")
	r := d.run(s).answer()
	d.run(w.start(w.bad(), "exit", "--code=0")).wantRefused(protocol.CodeDenied)
	d.run(w.start(good, "exit", "--code=0")).wantRefused(protocol.CodeRateLimited)
	require.NoError(t, r.stream.Reset())
	again := d.run(w.attach(s, r.accepted.Token, 0)).answer()
	require.NotNil(t, again.accepted)
	require.Equal(t, &protocol.CancelReply{State: protocol.OperationRunning}, w.cancel(d, s))
	require.Equal(t, protocol.CodeCancelled, again.finish().Code)
}
