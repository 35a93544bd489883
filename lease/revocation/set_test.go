package revocation

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/protocol/name"
)

var testTime = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func testPeer(n byte) name.PeerID {
	key := make([]byte, 32)
	key[0] = n
	return must(name.PeerIDFromKey(key))
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func invocation(s string) name.InvocationID { return must(name.ParseInvocationID(s)) }

func subject() lease.Subject {
	return lease.Subject{Lease: lease.ID{1}, Invocation: invocation("run-1"), Holder: testPeer(1), Issuer: testPeer(2), IssuedAt: testTime}
}

// spec: LEASE-26
func TestRevoked(t *testing.T) {
	t.Parallel()
	for label, c := range map[string]struct {
		entry Entry
		want  bool
	}{
		"lease":              {Entry{Lease: lease.ID{1}}, true},
		"other-lease":        {Entry{Lease: lease.ID{2}}, false},
		"invocation":         {Entry{Invocation: invocation("run-1")}, true},
		"other-invocation":   {Entry{Invocation: invocation("run-2")}, false},
		"holder":             {Entry{Holder: testPeer(1)}, true},
		"holder-is-issuer":   {Entry{Holder: testPeer(2)}, false},
		"issuer":             {Entry{Issuer: testPeer(2)}, true},
		"issuer-is-holder":   {Entry{Issuer: testPeer(1)}, false},
		"before":             {Entry{IssuedBefore: testTime.Add(time.Millisecond)}, true},
		"before-is-exact":    {Entry{IssuedBefore: testTime}, false},
		"issuers-invocation": {Entry{Issuer: testPeer(2), Invocation: invocation("run-1")}, true},
		"issuers-other":      {Entry{Issuer: testPeer(2), Invocation: invocation("run-2")}, false},
		"others-invocation":  {Entry{Issuer: testPeer(3), Invocation: invocation("run-1")}, false},
		"issuer-before":      {Entry{Issuer: testPeer(2), IssuedBefore: testTime}, false},
		"forgettable":        {Entry{Lease: lease.ID{1}, Until: testTime.Add(-time.Hour)}, true},
	} {
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			s, err := New(Entry{Lease: lease.ID{9}}, c.entry)
			require.NoError(t, err)
			require.Equal(t, c.want, s.Revoked(subject()))
			again, err := Parse(must(s.Marshal()))
			require.NoError(t, err)
			require.Equal(t, s, again)
			require.Equal(t, c.want, again.Revoked(subject()))
		})
	}
}

// spec: LEASE-26, LEASE-34
func TestUnreadableDeniesAll(t *testing.T) {
	t.Parallel()
	empty := must(New())
	require.False(t, empty.Revoked(subject()))
	good := string(must(must(New(Entry{Lease: lease.ID{1}, At: testTime}, Entry{Issuer: testPeer(3)})).Marshal()))
	lines := strings.SplitAfter(good, "\n")
	for label, text := range map[string]string{
		"empty":           "",
		"no-newline":      strings.TrimSuffix(good, "\n"),
		"cut":             lines[0] + lines[1],
		"line-missing":    lines[0] + lines[2] + lines[3],
		"line-more":       lines[0] + lines[1] + lines[1] + lines[2] + lines[3],
		"version":         strings.Replace(good, "revocations 1", "revocations 2", 1),
		"crlf":            strings.ReplaceAll(good, "\n", "\r\n"),
		"text-after":      good + "x",
		"unknown-field":   strings.Replace(good, "lease=", "color=", 1),
		"bad-value":       strings.Replace(good, "lease=01", "lease=0x", 1),
		"order":           "lend revocations 1\nrevoke at=2026-11-30T12:00:00.000Z lease=01000000000000000000000000000000\nend 1\n",
		"twice":           "lend revocations 1\nrevoke lease=01000000000000000000000000000000 lease=01000000000000000000000000000000\nend 1\n",
		"names-nothing":   "lend revocations 1\nrevoke\nend 1\n",
		"only-times":      "lend revocations 1\nrevoke at=2026-11-30T12:00:00.000Z\nend 1\n",
		"other-verb":      "lend revocations 1\nallow lease=01000000000000000000000000000000\nend 1\n",
		"double-space":    "lend revocations 1\nrevoke  lease=01000000000000000000000000000000\nend 1\n",
		"time-spelling":   "lend revocations 1\nrevoke before=2026-11-30T12:00:00Z\nend 1\n",
		"time-zone":       "lend revocations 1\nrevoke before=2026-11-30T12:00:00.000+01:00\nend 1\n",
		"negative-number": "lend revocations 1\nend -1\n",
	} {
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			s, err := Parse([]byte(text))
			require.Error(t, err)
			require.NotNil(t, s)
			require.True(t, s.Revoked(subject()))
			_, err = s.Marshal()
			require.ErrorIs(t, err, errDenyAll)
			_, err = s.With(testTime, Entry{Lease: lease.ID{1}})
			require.ErrorIs(t, err, errDenyAll)
		})
	}
	var none *Set
	require.True(t, none.Revoked(subject()))
	require.True(t, new(Set).Revoked(subject()))
	require.Empty(t, none.Entries())
	require.False(t, none.Covers(Entry{Lease: lease.ID{1}}))
	require.False(t, new(Set).Covers(Entry{Lease: lease.ID{1}}))
	_, err := Parse(make([]byte, MaxBytes+1))
	require.Error(t, err)
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	for label, entries := range map[string][]Entry{
		"names-nothing": {{}},
		"only-times":    {{At: testTime, Until: testTime}},
		"too-many":      make([]Entry, MaxEntries+1),
		"far-future":    {{Lease: lease.ID{1}, Until: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)}},
		"far-past":      {{IssuedBefore: time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC)}},
	} {
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			s, err := New(entries...)
			require.Error(t, err)
			require.Nil(t, s)
		})
	}
}

func TestWithForgetsWhatIsOver(t *testing.T) {
	t.Parallel()
	old := Entry{Lease: lease.ID{1}, Until: testTime}
	kept := Entry{Lease: lease.ID{2}, Until: testTime.Add(time.Millisecond)}
	forever := Entry{Holder: testPeer(1)}
	s := must(New(old, kept, forever))
	next, err := s.With(testTime, Entry{Lease: lease.ID{3}})
	require.NoError(t, err)
	require.Equal(t, []Entry{kept, forever, {Lease: lease.ID{3}}}, next.Entries())
	require.Equal(t, []Entry{old, kept, forever}, s.Entries(), "a set does not change")
}

// A set revokes what its entries say one by one, and reads back as itself.
// spec: LEASE-34
func TestModel(t *testing.T) {
	t.Parallel()
	peers := []name.PeerID{{}, testPeer(1), testPeer(2)}
	runs := []name.InvocationID{{}, invocation("a"), invocation("b")}
	times := []time.Time{{}, testTime, testTime.Add(time.Second)}
	rapid.Check(t, func(rt *rapid.T) {
		var entries []Entry
		for range rapid.IntRange(0, 6).Draw(rt, "n") {
			e := Entry{
				Lease:        lease.ID{rapid.ByteRange(0, 2).Draw(rt, "lease")},
				Invocation:   rapid.SampledFrom(runs).Draw(rt, "invocation"),
				Holder:       rapid.SampledFrom(peers).Draw(rt, "holder"),
				Issuer:       rapid.SampledFrom(peers).Draw(rt, "issuer"),
				IssuedBefore: rapid.SampledFrom(times).Draw(rt, "before"),
			}
			if e == (Entry{}) {
				e.Lease[0] = 1
			}
			entries = append(entries, e)
		}
		s := must(New(entries...))
		s = must(Parse(must(s.Marshal())))
		sub := lease.Subject{
			Lease:      lease.ID{rapid.ByteRange(1, 2).Draw(rt, "lease")},
			Invocation: rapid.SampledFrom(runs[1:]).Draw(rt, "invocation"),
			Holder:     rapid.SampledFrom(peers[1:]).Draw(rt, "holder"),
			Issuer:     rapid.SampledFrom(peers[1:]).Draw(rt, "issuer"),
			IssuedAt:   testTime,
		}
		want := false
		for _, e := range entries {
			want = want || (e.Lease.IsZero() || e.Lease == sub.Lease) && (e.Invocation.IsZero() || e.Invocation == sub.Invocation) &&
				(e.Holder.IsZero() || e.Holder == sub.Holder) && (e.Issuer.IsZero() || e.Issuer == sub.Issuer) &&
				(e.IssuedBefore.IsZero() || testTime.Before(e.IssuedBefore))
		}
		require.Equal(t, want, s.Revoked(sub))
		probe := Entry{
			Lease:        lease.ID{rapid.ByteRange(0, 2).Draw(rt, "covered lease")},
			Invocation:   rapid.SampledFrom(runs).Draw(rt, "covered invocation"),
			Holder:       rapid.SampledFrom(peers).Draw(rt, "covered holder"),
			Issuer:       rapid.SampledFrom(peers).Draw(rt, "covered issuer"),
			IssuedBefore: rapid.SampledFrom(times).Draw(rt, "covered before"),
		}
		own := 0
		for _, e := range entries {
			if e.Issuer == probe.Issuer {
				own++
			}
		}
		require.Equal(t, slices.ContainsFunc(entries, func(e Entry) bool { return e.Covers(probe) }), s.Covers(probe))
		all, of := s.Count(probe.Issuer)
		require.Equal(t, []int{len(entries), own}, []int{all, of})
	})
}

func FuzzParse(f *testing.F) {
	f.Add(must(must(New(Entry{Lease: lease.ID{1}, At: testTime}, Entry{Issuer: testPeer(3), IssuedBefore: testTime})).Marshal()))
	f.Add([]byte("lend revocations 1\nend 0\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := Parse(b)
		if err != nil {
			require.True(t, s.Revoked(subject()))
			return
		}
		require.Equal(t, b, must(s.Marshal()))
	})
}
