package ledger

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/gateway/ledger/folder"
	"github.com/lendcli/lend/gateway/ledger/record"
	"github.com/lendcli/lend/protocol/name"
)

// spec: LEDGER-17
func TestKeysAreScopes(t *testing.T) {
	t.Parallel()
	l := mustOpen(t, ledgerDir(t))
	begin(t, l, testClaim(t, 1))
	for label, change := range map[string]func(*Claim){
		"issuer":     func(c *Claim) { c.Issuer = testPeer(t, 9) },
		"holder":     func(c *Claim) { c.Holder = testPeer(t, 9) },
		"invocation": func(c *Claim) { c.Invocation = must(name.ParseInvocationID("run-2")) },
		"operation":  func(c *Claim) { c.Operation = must(name.ParseOperationID("operation-00000002")) },
	} {
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			c := testClaim(t, 1)
			change(&c)
			c.Digest[0]++
			require.Equal(t, StateNone, stateOf(t, l, c))
			require.Equal(t, StateNone, must(l.Lookup(c.Key)).State)
		})
	}
}

// A scope is closed once nothing of it is under way.
func TestAnyLive(t *testing.T) {
	t.Parallel()
	var h, other folder.Hash
	other[0] = 1
	v := &views{live: map[folder.Hash]*operation{{7}: {scope: h}}}
	require.True(t, v.anyLive([]folder.Hash{h, other}))
	require.False(t, v.anyLive([]folder.Hash{other}))
	require.False(t, v.anyLive(nil))
}

func TestIncompleteIsRefused(t *testing.T) {
	t.Parallel()
	l := mustOpen(t, ledgerDir(t))
	for label, change := range map[string]func(*Claim){
		"no-issuer":     func(c *Claim) { c.Issuer = name.PeerID{} },
		"no-holder":     func(c *Claim) { c.Holder = name.PeerID{} },
		"no-invocation": func(c *Claim) { c.Invocation = name.InvocationID{} },
		"no-operation":  func(c *Claim) { c.Operation = name.OperationID{} },
		"no-grant":      func(c *Claim) { c.Frozen = nil },
		"large-grant":   func(c *Claim) { c.Frozen = make([]byte, record.MaxFrozen+1) },
	} {
		t.Run(label, func(t *testing.T) {
			c := testClaim(t, 1)
			change(&c)
			_, err := l.Reserve(c)
			require.Error(t, err)
		})
	}
	for label, change := range map[string]func(*Start){
		"no-connector":   func(s *Start) { s.Connector = name.ConnectorKey{} },
		"no-version":     func(s *Start) { s.Version = name.Version{} },
		"no-command":     func(s *Start) { s.Command = name.Command{} },
		"no-expiry":      func(s *Start) { s.LeaseNotAfter = time.Time{} },
		"large-identity": func(s *Start) { s.Identity = make([]byte, record.MaxIdentity+1) },
		"large-audit":    func(s *Start) { s.Audit = make([]byte, record.MaxAudit+1) },
	} {
		t.Run(label, func(t *testing.T) {
			r := reserve(t, l, 1)
			defer r.Release()
			s := testStart()
			change(&s)
			require.Error(t, r.Start(t.Context(), s))
		})
	}
	r := begin(t, l, testClaim(t, 1))
	for label, e := range map[string]End{
		"state":    {},
		"running":  {State: StateRunning},
		"status":   {State: StateEnded, Status: 256},
		"signal":   {State: StateEnded, Signal: strings.Repeat("x", 65)},
		"duration": {State: StateEnded, Duration: -1},
	} {
		require.Error(t, r.End(e), label)
	}
	require.NoError(t, r.End(End{State: StateEnded, Detail: strings.Repeat("é", 1000)}))
	require.LessOrEqual(t, len(must(l.Lookup(testKey(t, 1))).End.Detail), record.MaxDetail)
}

// spec: LEDGER-18
func TestReservationIsUsedOnce(t *testing.T) {
	t.Parallel()
	l := mustOpen(t, ledgerDir(t))
	r := reserve(t, l, 1)
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, r.Start(cancelled, testStart()), context.Canceled)
	require.ErrorIs(t, r.End(End{State: StateEnded}), errNotRunning)
	pending, err := l.Reserve(testClaim(t, 1))
	require.NoError(t, err)
	r.Release()
	r.Release()
	<-pending.Settled
	require.ErrorIs(t, r.Start(t.Context(), testStart()), errTwice)
	require.Equal(t, 0, l.Operations(testPeer(t, 1), [16]byte{1}))
	r = begin(t, l, testClaim(t, 1))
	r.Release()
	require.ErrorIs(t, r.Start(t.Context(), testStart()), errTwice)
	require.Equal(t, StateRunning, stateOf(t, l, testClaim(t, 1)))
}

// spec: LEDGER-19
func TestOperationBudget(t *testing.T) {
	t.Parallel()
	dir := ledgerDir(t)
	l := mustOpen(t, dir)
	claim := func(n int) Claim {
		c := testClaim(t, n)
		c.MaxOperations = 2
		return c
	}
	begin(t, l, claim(1))
	second, err := l.Reserve(claim(2))
	require.NoError(t, err)
	require.Equal(t, StateExhausted, stateOf(t, l, claim(3)), "a reservation counts")
	require.Equal(t, StateRunning, stateOf(t, l, claim(1)), "a known operation needs no budget")
	second.Reservation.Release()
	require.NoError(t, begin(t, l, claim(4)).End(End{State: StateNotStarted, Cause: "ROUTE_CHANGED"}))
	require.Equal(t, StateExhausted, stateOf(t, l, claim(3)))
	other := claim(3)
	other.Lease[0] = 7
	require.Equal(t, StateNone, stateOf(t, l, other))
	other = claim(3)
	other.Issuer = testPeer(t, 9)
	require.Equal(t, StateNone, stateOf(t, l, other), "another issuer's lease of the same ID")
	other = claim(3)
	other.MaxOperations = 0
	other.Lease[0] = 8
	require.Equal(t, StateExhausted, stateOf(t, l, other), "zero is none")
	require.NoError(t, l.Close())
	l = mustOpen(t, dir)
	require.Equal(t, 2, l.Operations(testPeer(t, 1), [16]byte{1}))
	require.Equal(t, StateExhausted, stateOf(t, l, claim(3)))
}

// What is started under a lease that was passed on counts for every link, under the
// issuer of each, whoever holds it, and after a restart that reads the records or the
// snapshots. spec: LEDGER-19
func TestOperationBudgetOfAChain(t *testing.T) {
	t.Parallel()
	root, first, second, third := testPeer(t, 1), testPeer(t, 2), testPeer(t, 3), testPeer(t, 4)
	direct := func(n int) Claim {
		c := testClaim(t, n)
		c.MaxOperations = 5
		return c
	}
	passedOn := func(n, most int, to name.PeerID, id byte) Claim {
		c := direct(n)
		c.Holder, c.Lease, c.MaxOperations = to, [16]byte{id}, most
		c.Above = []Link{{Lease: [16]byte{1}, Holder: first, MaxOperations: 5}}
		return c
	}
	twice := func(n int) Claim {
		c := passedOn(n, 9, third, 4)
		c.Above = append(c.Above, Link{Lease: [16]byte{3}, Holder: second, MaxOperations: 3})
		return c
	}
	for _, bytes := range []int64{0, 1} { // one segment, or one for each record
		dir := ledgerDir(t)
		cfg := Config{Dir: dir, Now: testNow, segmentBytes: bytes}
		l, err := Open(cfg)
		require.NoError(t, err)
		run(t, l, direct(1))
		run(t, l, passedOn(2, 3, second, 3))
		held, err := l.Reserve(twice(3))
		require.NoError(t, err)
		require.Equal(t, 3, l.Operations(root, [16]byte{1}))
		require.Equal(t, 2, l.Operations(first, [16]byte{3}), "the link's own, under its issuer")
		require.Equal(t, 1, l.Operations(second, [16]byte{4}))
		require.Zero(t, l.Operations(root, [16]byte{3}))
		held.Reservation.Release()
		require.Equal(t, []int{2, 1, 0}, []int{l.Operations(root, [16]byte{1}), l.Operations(first, [16]byte{3}), l.Operations(second, [16]byte{4})})
		run(t, l, twice(3))
		run(t, l, twice(4))
		require.Equal(t, StateExhausted, stateOf(t, l, twice(5)), "the link in the middle has no more")
		require.Equal(t, StateExhausted, stateOf(t, l, passedOn(5, 3, second, 3)))
		require.Equal(t, StateExhausted, stateOf(t, l, passedOn(5, 0, second, 6)), "zero is none")
		other := passedOn(5, 3, third, 1) // a link with the ID of its root, which is not its root's
		run(t, l, other)
		for range 2 {
			require.Equal(t, 5, l.Operations(root, [16]byte{1}))
			require.Equal(t, 1, l.Operations(first, [16]byte{1}))
			require.Equal(t, StateExhausted, stateOf(t, l, direct(6)), "the root's holder has none left")
			require.Equal(t, StateExhausted, stateOf(t, l, passedOn(6, 9, second, 9)), "nor has a new link")
			out := must(l.Lookup(twice(4).Key))
			require.Equal(t, []record.Link{{Lease: [16]byte{1}, Holder: first}, {Lease: [16]byte{3}, Holder: second}}, out.Start.Above)
			require.Equal(t, [16]byte{4}, out.Start.Lease)
			require.Nil(t, must(l.Lookup(direct(1).Key)).Start.Above)
			require.NoError(t, l.Close())
			l, err = Open(cfg)
			require.NoError(t, err)
		}
		require.NoError(t, l.Close())
	}
	l := mustOpen(t, ledgerDir(t))
	for _, above := range [][]Link{{{}}, {{Holder: first}, {Holder: second}, {Holder: third}}} {
		c := direct(1)
		c.Above = above
		for i := range c.Above {
			c.Above[i].MaxOperations = 1
		}
		out, err := l.Reserve(c)
		require.NoError(t, err)
		require.Error(t, out.Reservation.Start(t.Context(), testStart()), "it has no record")
		out.Reservation.Release()
	}
}

// spec: LEDGER-20
func TestFirstStartFreezes(t *testing.T) {
	t.Parallel()
	dir := ledgerDir(t)
	l := mustOpen(t, dir)
	propose := func(n int, grant string) *Reservation {
		c := testClaim(t, n)
		c.Frozen = []byte(grant)
		out, err := l.Reserve(c)
		require.NoError(t, err)
		require.NotNil(t, out.Reservation)
		return out.Reservation
	}
	frozen := func() string {
		b, ok, err := l.Frozen(testPeer(t, 1), must(name.ParseInvocationID("run-1")), testPeer(t, 2))
		require.NoError(t, err)
		require.Equal(t, ok, len(b) > 0)
		return string(b)
	}
	propose(1, "released").Release()
	require.Empty(t, frozen(), "a refused start freezes nothing")

	first, second := propose(1, "narrow"), propose(2, "wide")
	require.Equal(t, "narrow", string(second.Frozen()), "two first uses decide by one grant")
	first.Release()
	require.Equal(t, "narrow", string(propose(3, "third").Frozen()), "as long as one of them is there")
	require.NoError(t, second.Start(t.Context(), testStart()))
	require.Equal(t, "narrow", frozen())
	later := propose(4, "later")
	require.Equal(t, "narrow", string(later.Frozen()))
	require.NoError(t, later.Start(t.Context(), testStart()))

	other := testClaim(t, 1)
	other.Holder = testPeer(t, 9)
	other.Frozen = []byte("of another holder")
	require.Equal(t, "of another holder", string(must(l.Reserve(other)).Reservation.Frozen()))

	require.NoError(t, l.Close())
	l = mustOpen(t, dir)
	require.Equal(t, "narrow", frozen())
	c := testClaim(t, 9)
	c.Frozen = nil
	out, err := l.Reserve(c)
	require.NoError(t, err, "a known grant needs no proposal")
	require.Equal(t, "narrow", string(out.Reservation.Frozen()))
	grants := 0
	require.NoError(t, Walk(dir, func(e Entry) error {
		if e.Start != nil && len(e.Start.Frozen) > 0 {
			grants++
		}
		return nil
	}))
	require.Equal(t, 1, grants, "stored once")
}

func TestDigestIsKeyed(t *testing.T) {
	t.Parallel()
	a, b := mustOpen(t, ledgerDir(t)), mustOpen(t, ledgerDir(t))
	part := func(s ...string) (out [][]byte) {
		for _, p := range s {
			out = append(out, []byte(p))
		}
		return out
	}
	first := a.Digest(part("x", "y")...)
	require.Equal(t, first, a.Digest(part("x", "y")...))
	require.NotEqual(t, first, a.Digest(part("xy")...))
	require.NotEqual(t, first, a.Digest(part("x", "y", "")...))
	require.NotEqual(t, a.Digest(part("x")...), b.Digest(part("x")...))
	require.NotEqual(t, a.ID(), b.ID())
}

func TestHighIsTheLatestTime(t *testing.T) {
	t.Parallel()
	dir := ledgerDir(t)
	now := testTime
	l, err := Open(Config{Dir: dir, Now: func() time.Time { return now }})
	require.NoError(t, err)
	now = testTime.Add(time.Hour)
	require.NoError(t, l.Event(Event{Name: "x"}))
	now = testTime
	require.NoError(t, l.Event(Event{Name: "x"}))
	require.Equal(t, testTime.Add(time.Hour), l.High())
	require.NoError(t, l.Close())
	require.Equal(t, testTime.Add(time.Hour), mustOpen(t, dir).High())
}

// spec: LEDGER-26, LEDGER-27
func TestVerifyFindsChanges(t *testing.T) {
	t.Parallel()
	dir, log, point := small(t, true)
	var frames []int64
	frames = append(frames, ends(t, dir)...)
	early := func() []byte { // a checkpoint kept elsewhere, of a longer ledger
		l := mustOpen(t, dir)
		begin(t, l, testClaim(t, 3))
		p := must(l.Checkpoint())
		require.NoError(t, l.Close())
		restore(t, dir, log, point)
		return p
	}()
	foreign := must(mustOpen(t, ledgerDir(t)).Checkpoint())

	report, err := Verify(dir, point)
	require.NoError(t, err)
	require.Equal(t, Report{
		ID: report.ID, Birth: testTime, Root: report.Root, VerifierKey: report.VerifierKey,
		Segments: 1, Records: 5, Covered: 5, Kept: 5, Starts: 2, Ends: 1, Refusals: 1, Running: 1,
	}, report)
	for label, c := range map[string]struct {
		log   []byte
		point []byte
		kept  []byte
		says  string
	}{
		"kept-is-longer":  {log, point, early, "covers 7 records; the rest is gone"},
		"kept-is-foreign": {log, point, foreign, "checkpoint 0 was not signed by this ledger's key"},
		"kept-is-garbage": {log, point, []byte("x"), "checkpoint 0 was not signed"},
		"cut-tail":        {log[:frames[3]], point, nil, "covers 5 records; the rest is gone"},
		"cut-in-record":   {log[:frames[3]+5], point, nil, "covers 5 records; the rest is gone"},
		"record-deleted":  {append(append([]byte(nil), log[:frames[1]]...), log[frames[2]:]...), point, nil, "record 2 at offset"},
		"empty":           {nil, point, nil, "there is no record"},
		"edited":          {replaced(log, "issue.list", "issue.kill"), point, nil, "checksum"},
	} {
		t.Run(label, func(t *testing.T) {
			restore(t, dir, c.log, c.point)
			var kept [][]byte
			if c.kept != nil {
				kept = append(kept, c.kept)
			}
			_, err := Verify(dir, kept...)
			require.ErrorIs(t, err, ErrCorrupt)
			require.ErrorContains(t, err, c.says)
		})
	}
	restore(t, dir, log, point)
	require.NoError(t, os.Remove(filepath.Join(dir, "checkpoint")))
	for _, private := range []string{"checkpoint.key", "digest.key", "reserve"} {
		require.NoError(t, os.Remove(filepath.Join(dir, private)))
	}
	_, err = Verify(dir, point)
	require.NoError(t, err, "a copy needs no keys")
}

func replaced(b []byte, old, fresh string) []byte {
	return []byte(strings.Replace(string(b), old, fresh, 1))
}

func BenchmarkOpen(b *testing.B) {
	dir := ledgerDir(b)
	l := mustOpen(b, dir)
	const n = 100_000
	g := l.join(nil, durable)
	for i := range n {
		c := testClaim(b, i)
		s := testStart()
		s.Key, s.Digest, s.At, s.Frozen = c.Key, c.Digest, testTime, c.Frozen
		g.entries = append(g.entries, &entry{payload: s.Encode()})
		e := End{State: StateEnded, At: testTime}
		g.entries = append(g.entries, &entry{payload: e.Encode(uint64(2*i + 1))})
	}
	l.busy = true
	l.lead()
	require.NoError(b, l.Close())
	for b.Loop() {
		l, err := Open(Config{Dir: dir, Now: testNow})
		require.NoError(b, err)
		b.StopTimer()
		require.Equal(b, uint64(2*n+1), l.Recovery().Records)
		require.NoError(b, l.Close())
		b.StartTimer()
	}
}
