package revocation

import (
	"bytes"
	"crypto/ed25519"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/protocol/name"
)

func guardPeer(t *testing.T, letter byte) name.PeerID {
	t.Helper()
	seed := make([]byte, ed25519.SeedSize)
	seed[0] = letter
	id, err := name.PeerIDFromKey(ed25519.NewKeyFromSeed(seed).Public().(ed25519.PublicKey))
	require.NoError(t, err)
	return id
}

// entries are one entry for each field that an entry can name, and another of the same
// field.
func guardEntries(t *testing.T) map[string][2]Entry {
	t.Helper()
	first, err := name.ParseInvocationID("run-1")
	require.NoError(t, err)
	second, err := name.ParseInvocationID("run-2")
	require.NoError(t, err)
	day := time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)
	return map[string][2]Entry{
		"lease":      {{Lease: lease.ID{1}}, {Lease: lease.ID{2}}},
		"invocation": {{Invocation: first}, {Invocation: second}},
		"holder":     {{Holder: guardPeer(t, 1)}, {Holder: guardPeer(t, 2)}},
		"issuer":     {{Issuer: guardPeer(t, 3)}, {Issuer: guardPeer(t, 4)}},
		"before":     {{IssuedBefore: day}, {IssuedBefore: day.Add(time.Hour)}},
	}
}

// TestMatchesEachField asks the match alone, without the index before it.
func TestMatchesEachField(t *testing.T) {
	t.Parallel()
	e := guardEntries(t)
	sub := lease.Subject{
		Lease: lease.ID{1}, Invocation: e["invocation"][0].Invocation, Holder: e["holder"][0].Holder, Issuer: e["issuer"][0].Issuer,
		IssuedAt: e["before"][0].IssuedBefore,
	}
	for field, two := range e {
		if field == "before" {
			require.False(t, two[0].matches(sub), "issued then, and not before")
			require.True(t, two[1].matches(sub))
			continue
		}
		require.True(t, two[0].matches(sub), field)
		require.False(t, two[1].matches(sub), field)
	}
	all := Entry{Lease: sub.Lease, Invocation: sub.Invocation, Holder: sub.Holder, Issuer: sub.Issuer, IssuedBefore: sub.IssuedAt.Add(1)}
	require.True(t, all.matches(sub))
}

// TestCoversEachField: an entry covers what is the same or narrower in each field.
func TestCoversEachField(t *testing.T) {
	t.Parallel()
	e := guardEntries(t)
	for field, two := range e {
		require.True(t, two[0].Covers(two[0]), field)
		require.Equal(t, field == "before", two[1].Covers(two[0]), "%s: only a later moment covers an earlier one", field)
		require.False(t, two[0].Covers(two[1]), field)
		for other, those := range e {
			if other != field {
				require.False(t, two[0].Covers(those[0]), "%s and %s", field, other)
			}
		}
	}
	before := e["before"][0]
	require.False(t, before.Covers(e["holder"][0]), "who names no moment names every one")
	both := e["holder"][0]
	both.IssuedBefore = before.IssuedBefore
	require.True(t, e["holder"][0].Covers(both))
	require.True(t, before.Covers(both))
	require.False(t, both.Covers(before))
	short := e["lease"][0]
	short.Until = before.IssuedBefore
	require.False(t, short.Covers(e["lease"][0]), "not for as long")
	require.True(t, e["lease"][0].Covers(short))
}

func TestSetsAreBounded(t *testing.T) {
	t.Parallel()
	entries := make([]Entry, MaxEntries+1)
	for i := range entries {
		entries[i].Lease = lease.ID{byte(i), byte(i >> 8), byte(i >> 16), 1}
	}
	_, err := New(entries...)
	require.Error(t, err)
	_, err = New(entries[1:]...)
	require.NoError(t, err)
}

func TestNothingIsNoSet(t *testing.T) {
	t.Parallel()
	var none *Set
	_, err := none.With(time.Now(), Entry{Lease: lease.ID{1}})
	require.Error(t, err)
	for _, text := range []string{"", "\n", revocationHead, revocationHead + "\n"} {
		s, err := Parse([]byte(text))
		require.Error(t, err, "%q", text)
		require.True(t, s.Revoked(lease.Subject{}))
	}
}

// TestParseSaysWhatIsWrong: where, and in which field.
func TestParseSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	good := "revoke lease=" + lease.ID{1}.String()
	for line, want := range map[string]string{
		"revoke lease=1":          `line 3: "lease": `,
		"revoke invocation=":      `line 3: "invocation": `,
		"revoke holder=x":         `line 3: "holder": `,
		"revoke issuer=x":         `line 3: "issuer": `,
		"revoke before=yesterday": `line 3: "before": `,
		good + " at=now":          `line 3: "at": `,
		good + " until=never":     `line 3: "until": `,
		good + " more=1":          `line 3: "more": unknown field`,
		good + " ":                `line 3: "": unknown field`,
		"Revoke" + good[6:]:       `line 3: not as it is written`,
		"revoke":                  `entry 1 names nothing`,
	} {
		s, err := Parse([]byte(strings.Join([]string{revocationHead, good, line, "end 2", ""}, "\n")))
		require.ErrorContains(t, err, want, line)
		require.True(t, s.Revoked(lease.Subject{}), line)
	}
}

// TestParseIsBounded: what is too large is not looked at.
func TestParseIsBounded(t *testing.T) {
	t.Parallel()
	head := []byte(revocationHead + "\n")
	s, err := Parse(append(head, bytes.Repeat([]byte("\n"), MaxBytes+1-len(head))...))
	require.ErrorContains(t, err, "more than 67108864 bytes")
	require.True(t, s.Revoked(lease.Subject{}))
}

// TestUnreadableCoversNothing: it denies everything, but nothing is kept in it.
func TestUnreadableCoversNothing(t *testing.T) {
	t.Parallel()
	var none *Set
	require.False(t, none.Covers(Entry{Lease: lease.ID{1}}))
	require.False(t, new(Set).Covers(Entry{Lease: lease.ID{1}}))
}

// TestPayloadThatIsNoMessage is said to be none.
func TestPayloadThatIsNoMessage(t *testing.T) {
	t.Parallel()
	_, refused := decode([]byte{0xff})
	require.Equal(t, refuse(ReasonEncoding, "not a protobuf message of this kind"), refused)
}

// TestMomentsAreWholeMilliseconds: both of a statement.
func TestMomentsAreWholeMilliseconds(t *testing.T) {
	t.Parallel()
	for _, change := range []func(*Statement){
		func(s *Statement) { s.At = s.At.Add(time.Microsecond) },
		func(s *Statement) { s.Entry.IssuedBefore = s.Entry.IssuedBefore.Add(time.Microsecond) },
	} {
		s := statement(change)
		require.Equal(t, badField("issued_at_ms", "want whole milliseconds"), s.check())
	}
}
