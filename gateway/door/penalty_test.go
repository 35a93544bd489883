package door

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/policy"
	"github.com/lendcli/lend/protocol"
)

// timed returns a door whose time the test moves.
func timed(p *policy.Policy) (d *Door, pass func(time.Duration)) {
	d = New(p, (&gone{}).add)
	now := time.Unix(1_800_000_000, 0)
	d.now = func() time.Time { return now }
	return d, func(t time.Duration) { now = now.Add(t) }
}

// hammer denies the peer until it is refused, and returns how often and for how long.
func hammer(t *testing.T, d *Door, p peer.ID) (denials int, wait time.Duration) {
	t.Helper()
	for ; rest(d.Penalty(p)) == 0; denials++ {
		require.Less(t, denials, 100)
		d.Deny(p)
	}
	return denials, rest(d.Penalty(p))
}

// rest is how long a peer is told to wait.
func rest(r *protocol.Refusal) time.Duration {
	if r == nil {
		return 0
	}
	return r.RetryAfter
}

func TestPenaltiesGrow(t *testing.T) {
	d, pass := timed(rules(t, false, "operations: 100"))
	one, name := someone(t, 1)
	other, _ := someone(t, 2)
	for i, want := range []struct {
		denials int
		seconds int
	}{{3, 15}, {2, 20}, {1, 20}, {1, 40}, {1, 80}, {1, 160}, {1, 320}, {1, 600}, {1, 600}, {1, 600}} {
		denials, wait := hammer(t, d, one)
		require.Equal(t, want.denials, denials, "penalty %d", i)
		require.Equal(t, time.Duration(want.seconds)*time.Second, wait, "penalty %d", i)
		require.Equal(t, []Penalized{{name, wait, i + 1}}, d.Penalties())
		d.Deny(one)
		require.Equal(t, wait, rest(d.Penalty(one)), "what was under way adds nothing")
		require.Zero(t, rest(d.Penalty(other)), "nobody else pays")
		pass(wait - time.Nanosecond)
		require.Equal(t, time.Millisecond, rest(d.Penalty(one)))
		pass(time.Nanosecond)
		require.Zero(t, rest(d.Penalty(one)), "who waits exactly as long is let in")
		require.Empty(t, d.Penalties())
	}
	pass(penaltyMemory + time.Second)
	denials, _ := hammer(t, d, one)
	require.Equal(t, 3, denials, "all was forgotten")
}

func TestDenialsOfThePolicy(t *testing.T) {
	one, _ := someone(t, 1)
	for limit, want := range map[string]struct {
		denials int
		rest    time.Duration
	}{"denials: 1": {1, 5 * time.Second}, "denials: 20": {20, 100 * time.Second}, "denials: 90": {90, 450 * time.Second}} {
		d, _ := timed(rules(t, false, limit))
		denials, wait := hammer(t, d, one)
		require.Equal(t, want.denials, denials)
		require.Equal(t, want.rest, wait)
	}
	d, _ := timed(rules(t, false, "denials: 500"))
	for range 499 {
		d.Deny(one)
	}
	require.Zero(t, rest(d.Penalty(one)))
	d.Deny(one)
	require.Equal(t, penaltyCap, rest(d.Penalty(one)))
	d, _ = timed(nil)
	d.Deny(one)
	require.Positive(t, rest(d.Penalty(one)), "without a policy")
}

func TestDebtsWearOff(t *testing.T) {
	d, pass := timed(rules(t, false, "operations: 100"))
	one, _ := someone(t, 1)
	for range 50 {
		d.Deny(one)
		pass(denialCost)
		require.Zero(t, rest(d.Penalty(one)), "a denial now and then")
	}
	d.connected(one)
	for range 10 {
		d.Deny(one)
		d.Deny(one)
		d.Proved(one)
		require.Zero(t, rest(d.Penalty(one)), "a lease that verifies takes the debt")
	}
	hammer(t, d, one)
	d.Proved(one)
	require.Positive(t, rest(d.Penalty(one)), "but no penalty in force")
	d.disconnected(one)
	d.Prune()
	require.Positive(t, rest(d.Penalty(one)), "leaving does not help")
	require.Positive(t, rest(d.Barred(one)))
	pass(time.Hour)
	d.Prune()
	require.Empty(t, d.known)
}

func TestWhoHasSomethingRunningIsReadNevertheless(t *testing.T) {
	d, _ := timed(rules(t, false, "operations: 100"))
	one, _ := someone(t, 1)
	release, err := d.Slot(one)
	require.NoError(t, err)
	hammer(t, d, one)
	require.Positive(t, rest(d.Penalty(one)))
	require.Zero(t, rest(d.Barred(one)))
	release()
	require.Positive(t, rest(d.Barred(one)))
}

// Fresh identities cost nothing, so strangers pay together: one now and then is let
// in for a while. Who is here, who has proved itself and who has a name stays.
func TestStrangersPayTogether(t *testing.T) {
	d, pass := timed(rules(t, true, "operations: 100"))
	defer d.Close()
	d.Grace = time.Hour
	named, _ := someone(t, 1)
	proved, _ := someone(t, 2)
	waiting, _ := someone(t, 3)
	late, _ := someone(t, 4)
	for _, id := range []peer.ID{named, proved, waiting} {
		require.True(t, d.admit(id))
		d.connected(id)
	}
	d.Proved(proved)
	for n := range byte(240) {
		id, _ := someone(t, 10+n)
		d.Deny(id)
		d.Prune()
	}
	require.True(t, d.admit(late), "one may try")
	require.False(t, d.admit(late), "not at once again")
	pass(trickleEvery)
	require.True(t, d.admit(late))
	require.Zero(t, rest(d.Penalty(late)))
	for _, id := range []peer.ID{named, proved, waiting} {
		require.True(t, d.admit(id))
		require.Zero(t, rest(d.Penalty(id)))
	}
	require.LessOrEqual(t, len(d.known), 3, "identities that cost nothing are not remembered")
	require.Equal(t, []Penalized{{Rest: 3*denialCost - trickleEvery}}, d.Penalties())
	for range 20 {
		pass(3 * denialCost)
		require.True(t, d.admit(late), "it does not grow")
		for range 3 {
			id, _ := someone(t, 77)
			d.Deny(id)
		}
		require.True(t, d.admit(late))
		require.False(t, d.admit(late))
	}
	hammer(t, d, proved)
	pass(time.Minute)
	require.True(t, d.admit(late), "a proved peer pays alone")
	require.True(t, d.admit(late))
}

// While they pay, few of them are here at once.
func TestPenitentsAreFew(t *testing.T) {
	d, pass := timed(rules(t, true, "operations: 100"))
	defer d.Close()
	d.Grace = time.Hour
	for range 3 {
		id, _ := someone(t, 200)
		d.Deny(id)
	}
	in := 0
	for n := range byte(10) {
		id, _ := someone(t, 10+n)
		if d.admit(id) {
			d.connected(id)
			in++
		}
		pass(trickleEvery)
	}
	require.Equal(t, penitents, in)
}

func TestPenaltiesAreBounded(t *testing.T) {
	d, _ := timed(rules(t, true, "operations: 100"))
	for i := range 2 * maxRemembered {
		id := peer.ID(append([]byte{byte(i), byte(i >> 8)}, make([]byte, 32)...))
		d.known[id] = &peerState{starts: d.getLocked(id).starts, remembered: true}
		d.known[id].debt.deny(d.now(), denialCost, penaltyCap)
	}
	d.Prune()
	require.LessOrEqual(t, len(d.known), maxRemembered)
}

// A caller that waits as long as it was told succeeds, whatever the rate, and in no
// minute are there more starts than the policy has.
func TestRetryAfterIsExact(t *testing.T) {
	for _, perMinute := range []string{"1", "2", "7", "59", "600", "601", "5999"} {
		d, pass := timed(rules(t, false, "starts_per_minute: "+perMinute))
		limit := LimitsOf(d.policy).StartsPerMinute
		one, _ := someone(t, 1)
		var taken []time.Time
		take := func() (wait time.Duration) {
			release, err := d.Slot(one)
			if err == nil {
				release()
				taken = append(taken, d.now())
				return 0
			}
			require.Equal(t, protocol.CodeRateLimited, code(t, err))
			var r *protocol.Refusal
			require.ErrorAs(t, err, &r)
			require.Zero(t, r.RetryAfter%time.Millisecond, "as the wire has it")
			require.LessOrEqual(t, r.RetryAfter, paceSpan*time.Second)
			return r.RetryAfter
		}
		step := time.Minute / time.Duration(limit) / 3 // three times as fast as it may
		for range 6 * limit {
			if wait := take(); wait > 0 {
				pass(wait - time.Millisecond)
				require.Positive(t, take(), "it was told too much")
				pass(time.Millisecond)
				require.Zero(t, take(), "%s a minute, after %d starts", perMinute, len(taken))
			}
			pass(step + 7*time.Microsecond)
		}
		require.Greater(t, len(taken), 3*limit)
		for i := limit; i < len(taken); i++ {
			require.GreaterOrEqual(t, taken[i].Sub(taken[i-limit]), time.Minute, "%s a minute, start %d", perMinute, i)
		}
	}
}

func TestPaceOfAClockThatIsSetBack(t *testing.T) {
	var p pace
	now := time.Unix(1_800_000_000, 0)
	require.Zero(t, p.take(now, 1))
	require.Positive(t, p.take(now.Add(-time.Hour), 1))
	require.Zero(t, p.take(now.Add(paceSpan*time.Second), 1))
	require.False(t, p.idle(now))
	require.True(t, p.idle(now.Add(time.Hour)))
	require.Equal(t, time.Minute, p.take(now.Add(time.Hour), 0))
}

func TestReloadMovesTheTransport(t *testing.T) {
	d := New(rules(t, false, "operations: 4096, operations_per_peer: 10"), (&gone{}).add)
	r, err := newResources(&d.transport, func(peer.ID) bool { return false }, func(peer.ID) bool { return false })
	require.NoError(t, err)
	defer r.Close()
	one, _ := someone(t, 1)
	open := func() (n int) {
		for {
			s, err := r.OpenStream(one, network.DirInbound)
			if err != nil {
				return n
			}
			defer s.Done()
			n++
		}
	}
	require.Equal(t, streamsPerPeer, open())
	d.Swap(rules(t, false, "operations: 4096, operations_per_peer: 4096"))
	require.Equal(t, 4*4096, open(), "the scope of the peer was there before")
	require.Equal(t, 4*4096, d.Transport().StreamsPerPeer)
	d.Swap(nil)
	require.Equal(t, streamsPerPeer, open())
}

func TestPermitsGoRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewPermits(1)
		one, _ := someone(t, 1)
		two, _ := someone(t, 2)
		three, _ := someone(t, 3)
		require.NoError(t, q.Acquire(t.Context(), one))
		var mu sync.Mutex
		var got []peer.ID
		wait := func(p peer.ID) {
			go func() {
				if q.Acquire(context.Background(), p) == nil {
					mu.Lock()
					got = append(got, p)
					mu.Unlock()
					q.Release()
				}
			}()
			synctest.Wait()
		}
		for range 4 {
			wait(one)
		}
		wait(two)
		wait(three)
		wait(two)
		late, cancel := context.WithCancelCause(t.Context())
		gaveUp := make(chan error)
		go func() { gaveUp <- q.Acquire(late, three) }()
		synctest.Wait()
		sorry := errors.New("sorry")
		cancel(sorry)
		require.ErrorIs(t, <-gaveUp, sorry)
		require.ErrorIs(t, q.Acquire(late, three), sorry)
		q.Release()
		synctest.Wait()
		require.Equal(t, []peer.ID{one, two, three, one, two, one, one}, got)
		require.Equal(t, 1, q.free)
		require.Empty(t, q.waiting)
		require.Empty(t, q.turns)
	})
}

func TestPermitsUnderCancels(t *testing.T) {
	q := NewPermits(3)
	var all sync.WaitGroup
	for i := range 400 {
		id, _ := someone(t, byte(1+i%5))
		all.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%7)*100*time.Microsecond)
			defer cancel()
			if q.Acquire(ctx, id) == nil {
				q.Release()
			}
		})
	}
	all.Wait()
	require.Equal(t, 3, q.free)
	require.Empty(t, q.waiting)
	require.Empty(t, q.turns)
}
