package gateway

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/lease/revocation"
	"github.com/lendcli/lend/protocol"
)

// clocks are a wall clock and the machine's time, which go on only if a test says so.
type clocks struct{ wall, machine atomic.Int64 }

func (c *clocks) now() time.Time         { return time.UnixMilli(c.wall.Load()) }
func (c *clocks) elapsed() time.Duration { return time.Duration(c.machine.Load()) }

func (c *clocks) move(wall, machine time.Duration) {
	c.wall.Add(wall.Milliseconds())
	c.machine.Add(int64(machine))
}

func newClocks(t *testing.T) (*world, *clocks) {
	t.Helper()
	c := &clocks{}
	c.wall.Store(time.Now().Add(time.Hour).UnixMilli())
	w := newWorld(t, func(_ *world, cfg *Config) { cfg.Now, cfg.Elapsed = c.now, c.elapsed })
	return w, c
}

// at makes a lease of ten minutes by those clocks.
func (c *clocks) at(w *world, edit ...func(*lease.Lease)) []byte {
	return w.lease(append([]func(*lease.Lease){func(l *lease.Lease) {
		l.IssuedAt = c.now().UTC()
		l.NotBefore, l.NotAfter = l.IssuedAt, l.IssuedAt.Add(10*time.Minute)
	}}, edit...)...)
}

// A lease has expired if either clock says so, and stays so; what runs under it ends
// within a second.
func TestExpiryByBothClocks(t *testing.T) {
	t.Parallel()
	const life, more = 10 * time.Minute, 11 * time.Minute
	type step struct{ wall, machine time.Duration }
	for _, transport := range transports() {
		for label, c := range map[string]struct {
			steps   []step
			expired bool
		}{
			"time-goes-by":               {[]step{{life, life}}, true},
			"not-yet":                    {[]step{{life - time.Millisecond, life - time.Millisecond}}, false},
			"suspend":                    {[]step{{more, more}}, true},
			"suspend-wall-stands-still":  {[]step{{0, more}}, true},
			"suspend-and-wall-back":      {[]step{{-time.Hour, more}}, true},
			"wall-forward":               {[]step{{more, time.Second}}, true},
			"wall-forward-and-back":      {[]step{{more, time.Second}, {-more, time.Second}}, true},
			"wall-back":                  {[]step{{-time.Hour, time.Second}}, false},
			"wall-back-and-time-goes-by": {[]step{{-time.Hour, time.Second}, {more, more}}, true},
			"machine-begins-anew":        {[]step{{time.Second, -50 * time.Hour}}, false},
		} {
			t.Run(transport+"/"+label, func(t *testing.T) {
				t.Parallel()
				w, clock := newClocks(t)
				d, l := w.dial(w.agent, transport), clock.at(w)
				run := d.run(w.start(l, "sleep"))
				run.answer()
				require.NotNil(t, run.accepted)
				began := time.Now()
				for _, s := range c.steps {
					clock.move(s.wall, s.machine)
					w.node.Now() // as the sweeper does twice a second
				}
				if !c.expired {
					d.run(w.start(l, "print", "--size=1")).finish()
					require.Equal(t, &protocol.CancelReply{State: protocol.OperationRunning}, w.cancelRunning(d))
					require.Equal(t, protocol.CodeCancelled, run.finish().Code)
					return
				}
				require.Equal(t, protocol.CodeLeaseExpired, run.finish().Code)
				require.Less(t, time.Since(began), time.Second)
				d.run(w.start(l, "print")).wantRefused(protocol.CodeLeaseExpired)
				clock.move(-2*more, 0)
				d.run(w.start(l, "print")).wantRefused(protocol.CodeLeaseExpired)
			})
		}
	}
}

// cancelRunning cancels the operation that has started first.
func (w *world) cancelRunning(d *dialer) protocol.ControlReply {
	w.t.Helper()
	ops := w.node.Status().Operations
	require.NotEmpty(w.t, ops)
	return w.cancel(d, &protocol.Start{Operation: ops[0].Operation})
}

// The skew of clocks widens not-before, by 30 s and not a millisecond more; it does
// not touch not-after.
func TestSkewToTheMillisecond(t *testing.T) {
	t.Parallel()
	for label, c := range map[string]struct {
		ahead time.Duration // of not-before
		want  protocol.Code
	}{
		"30.001-s-before": {-lease.DefaultSkew - time.Millisecond, protocol.CodeLeaseNotYetValid},
		"30-s-before":     {-lease.DefaultSkew, protocol.CodeOK},
		"at-not-before":   {0, protocol.CodeOK},
		"1-ms-left":       {10*time.Minute - time.Millisecond, protocol.CodeOK},
		"at-not-after":    {10 * time.Minute, protocol.CodeLeaseExpired},
		"1-ms-after":      {10*time.Minute + time.Millisecond, protocol.CodeLeaseExpired},
		"30-s-after":      {10*time.Minute + lease.DefaultSkew, protocol.CodeLeaseExpired},
	} {
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			w, clock := newClocks(t)
			clock.move(time.Hour, time.Hour)
			l := clock.at(w)
			if c.ahead < 0 { // the steady clock does not go back
				l = clock.at(w, func(l *lease.Lease) {
					l.IssuedAt = l.IssuedAt.Add(-c.ahead)
					l.NotBefore, l.NotAfter = l.IssuedAt, l.IssuedAt.Add(10*time.Minute)
				})
			} else {
				clock.move(c.ahead, c.ahead)
			}
			d := w.dial(w.agent, "tcp")
			if c.want == protocol.CodeOK {
				d.run(w.start(l, "print", "--size=1")).finish()
				return
			}
			d.run(w.start(l, "print")).wantRefused(c.want)
		})
	}
}

// A grant that says finish lets what runs go on; nothing new starts, it can still be
// attached to and cancelled, and a revocation ends it.
func TestFinishOutlivesTheLease(t *testing.T) {
	t.Parallel()
	for _, transport := range transports() {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			w, clock := newClocks(t)
			l := clock.at(w, func(l *lease.Lease) { l.Grants[0].Finish = true })
			d := w.dial(w.agent, transport)
			s := w.start(l, "sleep")
			run := d.run(s)
			run.answer()
			ends := d.run(w.start(clock.at(w), "sleep"))
			ends.answer()
			clock.move(time.Hour, time.Hour)
			require.Equal(t, protocol.CodeLeaseExpired, ends.finish().Code, "of a lease that does not say so")
			w.node.Recheck()
			d.run(w.start(l, "print")).wantRefused(protocol.CodeLeaseExpired)
			again := d.run(w.attach(s, run.accepted.Token, 0))
			again.answer()
			require.NotNil(t, again.accepted)
			w.revoked.set.Store(must(revocation.New(revocation.Entry{IssuedBefore: clock.now()})))
			require.Equal(t, protocol.CodeLeaseRevoked, again.finish().Code)
			_ = run.stream.Reset()
		})
	}
}

// The time that a command may run is the machine's, whatever happens to the wall
// clock.
func TestRunTimeIsNotTheWallClocks(t *testing.T) {
	t.Parallel()
	for label, wall := range map[string]time.Duration{"back": -time.Hour, "forward": 5 * time.Minute} {
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			c := &clocks{}
			c.wall.Store(time.Now().Add(time.Hour).UnixMilli())
			w := newWorld(t, withPolicy(basicPolicy+"    limits: {run: 1s}\n"), func(_ *world, cfg *Config) { cfg.Now, cfg.Elapsed = c.now, c.elapsed })
			began := time.Now()
			run := w.dial(w.agent, "tcp").run(w.start(c.at(w), "sleep"))
			run.answer()
			c.move(wall, 0)
			require.Equal(t, protocol.CodeTimeout, run.finish().Code)
			require.GreaterOrEqual(t, time.Since(began), time.Second)
			require.Less(t, time.Since(began), 3*time.Second)
		})
	}
}
