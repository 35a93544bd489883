package record

import (
	"encoding/binary"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lendcli/lend/protocol/name"
)

var testTime = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func testPeer(n byte) name.PeerID {
	key := make([]byte, 32)
	key[0] = n
	return must(name.PeerIDFromKey(key))
}

func testStart() Start {
	return Start{
		Key: Key{
			Issuer: testPeer(1), Holder: testPeer(2), Invocation: must(name.ParseInvocationID("run-1")),
			Operation: must(name.ParseOperationID("operation-00000001")),
		},
		At: testTime, Digest: [32]byte{1}, Lease: [16]byte{2}, LeaseNotAfter: testTime.Add(time.Hour),
		Connector: must(name.ParseConnectorKey("github")), Version: must(name.ParseVersion("2.40.1")),
		Command: must(name.ParseCommand("issue.list")),
		Frozen:  []byte("grant"), Identity: []byte("identity"), Audit: []byte("audit"),
	}
}

func testDelegated() Start {
	s := testStart()
	s.Above = []Link{{[16]byte{7}, testPeer(8)}, {[16]byte{9}, testPeer(10)}}
	return s
}

func testSegment() Segment {
	return Segment{
		ID: [16]byte{1, 2}, Birth: testTime, First: 7, VerifierKey: "lend/ledger/01+abc+def", Base: 1000,
		Edge: []byte("edge"), Point: []byte("checkpoint"), Kept: 3, Closed: Closed{Records: 1, Bytes: 50, Count: 1, Root: [32]byte{9}},
	}
}

func testRefusal() Refusal {
	s := testStart()
	return Refusal{
		At: testTime, Since: testTime.Add(-time.Minute), Count: 12, Reason: "LEASE_EXPIRED", Peer: testPeer(3), Issuer: s.Issuer,
		Invocation: s.Invocation, Operation: s.Operation, Lease: s.Lease, Connector: s.Connector, Version: s.Version,
		Command: s.Command, Detail: "why",
	}
}

// samples is one record of each kind, and the shortest of some.
func samples() map[string][]byte {
	start, seg := testStart(), testSegment()
	delegated := testDelegated()
	bare := testStart()
	bare.Frozen, bare.Identity, bare.Audit = nil, nil, nil
	end := End{
		State: StateEnded, At: testTime, Cause: "TIME_LIMIT", Status: 255, Signal: "SIGKILL", Core: true, Forced: true,
		Stdin: 1, Stdout: 1 << 40, Stderr: 3, Duration: time.Second, Detail: "detail",
	}
	return map[string][]byte{
		"segment":       seg.Encode(testTime),
		"start":         start.Encode(),
		"start-bare":    bare.Encode(),
		"delegated":     delegated.Encode(),
		"end":           end.Encode(300),
		"not-started":   (&End{State: StateNotStarted, At: testTime}).Encode(1),
		"unknown":       (&End{State: StateUnknown, At: testTime}).Encode(1 << 60),
		"refusal":       testRefusal().Encode(testTime),
		"refusal-short": Refusal{}.Encode(testTime),
		"event":         Event{At: testTime, Name: "boot", Facts: map[string]string{"b": "2", "a": "1"}}.Encode(testTime),
		"event-short":   Event{}.Encode(testTime),
	}
}

// spec: LEDGER-6
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	s := samples()
	start := testStart()
	got, err := Decode(5, s["start"])
	require.NoError(t, err)
	require.Equal(t, Entry{Index: 5, At: testTime, Start: &start}, got)

	delegated := testDelegated()
	require.Equal(t, delegated, *must(Decode(5, s["delegated"])).Start)
	require.Equal(t, byte(KindDelegated), s["delegated"][0])
	view, err := ViewStart(s["delegated"])
	require.NoError(t, err)
	var counted []string
	for issuer, lease := range view.Counted() {
		counted = append(counted, string(issuer[0])+string(lease[0]))
	}
	require.Equal(t, []string{"\x01\x07", "\x08\x09", "\x0a\x02"}, counted)

	got, err = Decode(5, s["end"])
	require.NoError(t, err)
	require.Equal(t, uint64(300), got.Of)
	require.Equal(t, End{
		State: StateEnded, At: testTime, Cause: "TIME_LIMIT", Status: 255, Signal: "SIGKILL", Core: true, Forced: true,
		Stdin: 1, Stdout: 1 << 40, Stderr: 3, Duration: time.Second, Detail: "detail",
	}, *got.End)
	of, ok := EndOf(s["unknown"])
	require.True(t, ok)
	require.Equal(t, uint64(1<<60), of)

	refusal := testRefusal()
	require.Equal(t, Entry{At: testTime, Refusal: &refusal}, must(Decode(0, s["refusal"])))
	require.Equal(t, Refusal{At: testTime, Since: testTime, Count: 1}, *must(Decode(0, s["refusal-short"])).Refusal)
	require.Equal(t, Event{At: testTime, Name: "boot", Facts: map[string]string{"a": "1", "b": "2"}}, *must(Decode(0, s["event"])).Event)
	require.Equal(t, testSegment(), must(DecodeSegment(s["segment"])))
	for label, b := range s {
		require.Equal(t, testTime, Time(b), label)
		require.LessOrEqual(t, len(b), MaxRecord)
		again, ok := encodeAgain(t, b)
		require.True(t, ok, label)
		require.Equal(t, b, again, label)
	}
}

// encodeAgain writes what Decode read.
func encodeAgain(tb testing.TB, b []byte) ([]byte, bool) {
	tb.Helper()
	e, err := Decode(0, b)
	switch {
	case err != nil:
		require.Nil(tb, e.Start)
		return nil, false
	case e.Start != nil:
		return e.Start.Encode(), true
	case e.End != nil:
		return e.End.Encode(e.Of), true
	case e.Refusal != nil:
		return e.Refusal.Encode(testTime), true
	case e.Event != nil:
		return e.Event.Encode(testTime), true
	default:
		s := must(DecodeSegment(b))
		return s.Encode(e.At), true
	}
}

// spec: LEDGER-6
func TestStrictDecoding(t *testing.T) {
	t.Parallel()
	for label, b := range samples() {
		for cut := range b {
			_, err := Decode(0, b[:cut])
			require.ErrorIs(t, err, errMalformed, "%s cut at %d", label, cut)
		}
		_, err := Decode(0, append(append([]byte(nil), b...), 0))
		require.ErrorIs(t, err, errMalformed, "%s with a byte behind it", label)
		unknown := append([]byte(nil), b...)
		unknown[0] = 99
		_, err = Decode(0, unknown)
		require.ErrorIs(t, err, errMalformed)
	}
	event := samples()["event"]
	at := strings.Index(string(event), "\x01a\x011")
	swapped := string(event[:at]) + "\x01b\x012\x01a\x011"
	for label, b := range map[string]string{
		"facts-out-of-order": swapped,
		"facts-twice":        string(event[:at]) + "\x01a\x011\x01a\x011",
		"long-varint":        string(event[:at-1]) + "\x82\x00" + string(event[at:]),
		"bad-utf8":           strings.Replace(string(event), "boot", "bo\xfft", 1),
		"time-in-year-10000": string(binary.AppendUvarint([]byte{KindEvent}, maxTime+1)) + "\x00\x00",
		"bad-name":           strings.Replace(string(samples()["start"]), "github", "GITHUB", 1),
		"no-links":           string(samples()["start-bare"]) + "\x00",
		"links-of-none":      "\x09" + string(samples()["start-bare"][1:]) + "\x00",
		"three-links":        "\x09" + string(samples()["start-bare"][1:]) + "\x03" + strings.Repeat("x", 3*48),
		"link-of-a-start":    "\x02" + string(samples()["delegated"][1:]),
		"end-flags":          strings.Replace(string(samples()["end"]), "SIGKILL\x03", "SIGKILL\x07", 1),
	} {
		_, err := Decode(0, []byte(b))
		require.ErrorIs(t, err, errMalformed, label)
	}
	require.True(t, Time(nil).IsZero())
	_, ok := EndOf([]byte{KindEnd})
	require.False(t, ok)
}

// spec: LEDGER-7
func TestTextIsCut(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", 3000)
	r := Refusal{Reason: long, Detail: long}
	got := must(Decode(0, r.Encode(testTime))).Refusal
	require.LessOrEqual(t, len(got.Reason), MaxCause)
	require.LessOrEqual(t, len(got.Detail), MaxDetail)
	facts := make(map[string]string)
	for i := range 100 {
		facts[strings.Repeat("k", i+1)] = "\xff" + long
	}
	ev := must(Decode(0, Event{Name: long, Facts: facts}.Encode(testTime))).Event
	require.LessOrEqual(t, len(ev.Facts), MaxFacts)
	for _, v := range ev.Facts {
		require.LessOrEqual(t, len(v), MaxDetail)
	}
	rapid.Check(t, func(rt *rapid.T) {
		s, n := rapid.String().Draw(rt, "s"), rapid.IntRange(0, 20).Draw(rt, "n")
		require.True(rt, validText(Clip(s, n), n))
	})
}

// A record of the greatest size fits into a frame. spec: LEDGER-7
func TestGreatestStartFits(t *testing.T) {
	t.Parallel()
	s := testDelegated()
	s.Frozen, s.Identity, s.Audit = make([]byte, MaxFrozen), make([]byte, MaxIdentity), make([]byte, MaxAudit)
	require.NoError(t, s.Check())
	require.LessOrEqual(t, len(s.Encode()), MaxRecord)
	require.Equal(t, s, *must(Decode(0, s.Encode())).Start)
	s.Frozen = append(s.Frozen, 0)
	require.Error(t, s.Check())
	s = testDelegated()
	s.Above = append(s.Above, s.Above[0])
	require.Error(t, s.Check())
	s.Above = []Link{{}}
	require.Error(t, s.Check())
}

func TestStates(t *testing.T) {
	t.Parallel()
	require.Equal(t, "unknown", StateUnknown.String())
	require.Equal(t, "invalid", State(99).String())
}

func FuzzDecode(f *testing.F) {
	for _, b := range samples() {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if again, ok := encodeAgain(t, b); ok {
			require.Equal(t, b, again)
		}
		if v, err := ViewStart(b); err == nil {
			require.Len(t, v.Issuer, 32)
		}
	})
}
