package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/gateway/ledger"
	"github.com/lendcli/lend/protocol/name"
)

func TestRecords(t *testing.T) {
	t.Parallel()
	b := newBook(t)
	at := b.now
	run := b.start("op-0000000000000001", `{"rule":"read","policy":"ab12","workspace":"site","purpose":"\"weekly\\u202e report\"","arguments":["issue","list","--repo=a\u001b[31m"],"variables":{"GH_HOST":"x"},"later":1}`)
	b.now = b.now.Add(time.Second)
	b.end(run, 3)
	lost := b.start("op-0000000000000002", "no json")
	require.NoError(t, lost.End(ledger.End{State: ledger.StateNotStarted, Cause: "NOT_STARTED", Detail: name.Quote("it \x1b[2J is gone")}))
	require.NoError(t, b.Refuse(ledger.Refusal{
		Reason: "POLICY_DENIED", Count: 40, Since: at, Peer: peerID(2), Connector: must(name.ParseConnectorKey("fx")),
		Detail: name.Quote("policy: argument-refused"),
	}))
	require.NoError(t, b.Event(ledger.Event{Name: "policy.loaded", Facts: map[string]string{"file": "/etc/\u202epolicy", "digest": "ab12"}}))
	b.start("op-0000000000000003", "{}")
	require.NoError(t, b.Close())
	b.open() // the gateway died: the third has no end

	got := all(t, b.view(Filter{}))
	require.Len(t, got, 9)
	one, end := got[1], got[2]
	text := func(r Record) string {
		s, err := json.Marshal(r)
		require.NoError(t, err)
		return string(s)
	}
	subject := fmt.Sprintf(`"peer":"%s","peerName":"laptop","issuer":"%s","invocation":"inv-1","lease":"07000000000000000000000000000000","connector":"fx","version":"1.0.0","command":"issue.list"`, peerID(2), peerID(1))
	require.JSONEq(t, `{"schemaVersion":1,"index":1,"at":"2026-11-30T12:00:00Z","kind":"start","operation":"op-0000000000000001",`+subject+`,
		"leaseNotAfter":"2026-11-30T13:00:00Z","rule":"read","policy":"ab12","workspace":"site","purpose":"\"weekly\\u202e report\"",
		"arguments":["issue","list","\"--repo=a\\x1b[31m\""],"variables":{"GH_HOST":"x"}}`, text(one))
	require.JSONEq(t, `{"schemaVersion":1,"index":2,"at":"2026-11-30T12:00:01Z","kind":"end","operation":"op-0000000000000001",`+subject+`,
		"start":1,"state":"ended","status":3,"durationMs":3,"stdin":0,"stdout":12,"stderr":0,"code":"OK"}`, text(end))
	require.Equal(t, "not-started", got[4].State)
	require.Equal(t, `"it \x1b[2J is gone"`, got[4].Detail)
	require.Nil(t, got[4].Status)
	require.JSONEq(t, fmt.Sprintf(`{"schemaVersion":1,"index":5,"at":"2026-11-30T12:00:01Z","kind":"refusal","peer":"%s","peerName":"laptop","connector":"fx",
		"code":"POLICY_DENIED","count":40,"since":"2026-11-30T12:00:00Z","detail":"policy: argument-refused"}`, peerID(2)), text(got[5]))
	require.JSONEq(t, `{"schemaVersion":1,"index":6,"at":"2026-11-30T12:00:01Z","kind":"event","event":"policy.loaded",
		"facts":{"digest":"ab12","file":"\"/etc/\\u202epolicy\""}}`, text(got[6]))
	require.Equal(t, "OUTCOME_UNKNOWN", got[8].Code)
	require.Equal(t, "op-0000000000000003", got[8].Operation, "an end is shown with what its start says")
	for _, r := range got {
		require.True(t, ascii(text(r)+r.Summary()), "%s", text(r))
	}
	var summaries []string
	for _, r := range got {
		summaries = append(summaries, r.Summary())
	}
	require.Equal(t, []string{
		"a file of the ledger begins",
		`rule read, workspace site: issue list "--repo=a\x1b[31m"`,
		"status 3, 3ms, 12 bytes out",
		"rule ",
		`NOT_STARTED: "it \x1b[2J is gone"`,
		"POLICY_DENIED 40 times in 1s: policy: argument-refused",
		`policy.loaded digest=ab12 file="/etc/\u202epolicy"`,
		"rule ",
		"the gateway died meanwhile",
	}, summaries)
}

func ascii(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

func TestShown(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"":                       "",
		"plain":                  "plain",
		`"quoted"`:               "quoted",
		`"a\x1bb"`:               `"a\x1bb"`,
		"raw\x1b":                `"raw\x1b"`,
		`"cut"…`:                 "cut...",
		`"not closed`:            `"not closed`,
		"\u202e":                 `"\u202e"`,
		"`raw`":                  "`raw`",
		`"in \"quotes\""`:        `in "quotes"`,
		name.Quote("\xff\u202e"): `"\xff\u202e"`,
	} {
		require.Equal(t, want, shown(in), "%q", in)
	}
}

func FuzzShown(f *testing.F) {
	for _, s := range []string{"", `"x"`, `"\u202e"…`, "\x1b]0;", `"\xff"`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		require.True(t, ascii(shown(s)))
		require.True(t, ascii(shown(name.Quote(s))))
	})
}

func TestFilter(t *testing.T) {
	t.Parallel()
	b := newBook(t)
	r1 := b.start("op-aaaa000000000001", "{}")
	b.now = b.now.Add(time.Hour)
	b.end(r1, 0)
	require.NoError(t, b.Refuse(ledger.Refusal{Reason: "DENIED", Peer: peerID(9)}))
	require.NoError(t, b.Event(ledger.Event{Name: "lockdown.on"}))
	begun := b.now.Add(-time.Hour)
	for label, c := range map[string]struct {
		filter Filter
		want   []uint64
	}{
		"all":            {Filter{}, []uint64{0, 1, 2, 3, 4}},
		"peer-by-name":   {Filter{Peer: "laptop"}, []uint64{1, 2}},
		"peer-by-id":     {Filter{Peer: peerID(9).String()}, []uint64{3}},
		"no-such-peer":   {Filter{Peer: "desktop"}, nil},
		"connector":      {Filter{Connector: "fx"}, []uint64{1, 2}},
		"command":        {Filter{Command: "issue.list"}, []uint64{1, 2}},
		"operation":      {Filter{Operation: "op-aaaa"}, []uint64{1, 2}},
		"code-of-end":    {Filter{Code: "OK"}, []uint64{2}},
		"code-refused":   {Filter{Code: "DENIED"}, []uint64{3}},
		"kind":           {Filter{Kinds: []Kind{KindStart, KindEvent}}, []uint64{1, 4}},
		"since":          {Filter{Since: b.now}, []uint64{2, 3, 4}},
		"until":          {Filter{Until: b.now}, []uint64{0, 1}},
		"since-is-first": {Filter{Since: begun, Until: begun.Add(time.Millisecond)}, []uint64{0, 1}},
	} {
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			var got, newest []uint64
			for _, r := range all(t, b.view(c.filter)) {
				got = append(got, r.Index)
			}
			require.Equal(t, c.want, got)
			found, more, err := b.view(c.filter).Newest(10)
			require.NoError(t, err)
			require.False(t, more)
			for _, r := range found {
				newest = append(newest, r.Index)
			}
			require.Equal(t, c.want, newest)
		})
	}
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.Local)
	for s, want := range map[string]time.Time{
		"36h": now.Add(-36 * time.Hour), "2026-11-01": time.Date(2026, 11, 1, 0, 0, 0, 0, time.Local),
		"2026-11-01T02:03:04Z": time.Date(2026, 11, 1, 2, 3, 4, 0, time.UTC), "2026-11-01 02:03": time.Date(2026, 11, 1, 2, 3, 0, 0, time.Local),
	} {
		got, err := ParseTime(s, now)
		require.NoError(t, err)
		require.True(t, want.Equal(got), s)
	}
	_, err := ParseTime("yester\x1bday", now)
	require.ErrorContains(t, err, `"yester\x1bday" is not a time`)
	_, err = ParseKind("starts")
	require.Error(t, err)
	require.Equal(t, KindStart, must(ParseKind("start")))
}

// Over several segments: the newest page reads no more of them than it needs, and an
// end whose start is in an older segment says whose it is.
func TestNewestOverSegments(t *testing.T) {
	t.Parallel()
	b := newBook(t)
	long := b.start("op-long000000000001", "{}")
	b.fill("a")
	b.end(long, 77)
	b.fill("b")
	require.NoError(t, b.Event(ledger.Event{Name: "last"}))
	require.Equal(t, 3, b.segments())
	every := all(t, b.view(Filter{}))
	require.Equal(t, b.Size(), uint64(len(every)))
	for i, r := range every {
		require.Equal(t, uint64(i), r.Index)
	}
	for _, n := range []int{1, 2, 3, len(every) / 2, len(every) - 1, len(every), len(every) + 7} {
		got, more, err := b.view(Filter{}).Newest(n)
		require.NoError(t, err)
		require.Equal(t, every[max(0, len(every)-n):], got, "%d", n)
		require.Equal(t, n < len(every), more, "%d", n)
	}
	code, _, err := b.view(Filter{Operation: "op-long", Kinds: []Kind{KindEnd}}).Newest(1)
	require.NoError(t, err)
	require.Len(t, code, 1)
	require.Equal(t, 77, *code[0].Status)
	require.Equal(t, "laptop", code[0].PeerName)

	// Damage of an old segment does not keep the newest page from being shown.
	first := filepath.Join(b.dir, fmt.Sprintf("%020d.log", 0))
	whole := readFile(t, first)
	require.NoError(t, os.WriteFile(first, []byte(strings.Replace(whole, "inv-1", "inv-2", 1)), 0o600))
	_, more, err := b.view(Filter{}).Newest(2)
	require.NoError(t, err)
	require.True(t, more)
	_, _, err = b.view(Filter{}).Newest(len(every))
	require.ErrorIs(t, err, ledger.ErrCorrupt)
	require.ErrorContains(t, err, "record 1 at")
	require.ErrorIs(t, b.view(Filter{}).Rest(func(*Record) error { return nil }), ledger.ErrCorrupt)

	// An older end is shown without its subject once its start is gone.
	require.NoError(t, os.Remove(first))
	got := all(t, b.view(Filter{Code: "OK"}))
	require.NotEmpty(t, got)
	for _, r := range got {
		if r.Status != nil && *r.Status == 77 && *r.Start == 1 {
			require.Empty(t, r.Operation)
			return
		}
	}
	require.Fail(t, "the end of the long one is there")
}

func TestWhereThereIsNoLedger(t *testing.T) {
	t.Parallel()
	for _, dir := range []string{t.TempDir(), filepath.Join(t.TempDir(), "none")} {
		v := New(Config{Dir: dir})
		_, _, err := v.Newest(1)
		require.ErrorIs(t, err, os.ErrNotExist)
		require.ErrorIs(t, v.Rest(nil), os.ErrNotExist)
	}
}

func TestFollow(t *testing.T) {
	t.Parallel()
	b := newBook(t)
	b.end(b.start("op-before0000000001", "{}"), 0)
	running := b.start("op-running000000001", "{}")
	v := b.view(Filter{})
	first, _, err := v.Newest(1)
	require.NoError(t, err)
	require.Equal(t, uint64(3), first[0].Index)

	ctx, cancel := context.WithCancel(t.Context())
	seen := make(chan Record)
	done := make(chan error)
	go func() {
		done <- v.Follow(ctx, func(r *Record) error {
			seen <- *r
			return nil
		})
	}()
	b.end(running, 5)
	r := <-seen
	require.Equal(t, uint64(4), r.Index)
	require.Equal(t, "op-running000000001", r.Operation, "its start came before the following")
	require.NoError(t, b.Refuse(ledger.Refusal{Reason: "BUSY"}))
	r = <-seen
	require.Equal(t, uint64(5), r.Index)
	go b.fill("f") // it goes on in the next segment
	for want := uint64(6); r.Index == 0 || r.Kind != KindSegment; want++ {
		r = <-seen
		require.Equal(t, want, r.Index)
	}
	cancel()
	for {
		select {
		case <-seen:
			continue
		case err := <-done:
			require.NoError(t, err)
			return
		}
	}
}

func TestRestStopsAtAnError(t *testing.T) {
	t.Parallel()
	b := newBook(t)
	b.end(b.start("op-0000000000000001", "{}"), 0)
	v, enough := b.view(Filter{}), errors.New("enough")
	n := 0
	err := v.Rest(func(*Record) error {
		if n++; n == 2 {
			return enough
		}
		return nil
	})
	require.ErrorIs(t, err, enough)
	got := all(t, v)
	require.Equal(t, uint64(1), got[0].Index, "it goes on at the record that was not taken")
}

// many is a ledger of refusals, and a few operations.
func many(tb testing.TB, n int) *book {
	tb.Helper()
	b := newBook(tb)
	for i := range n {
		if i%1000 == 0 {
			b.end(b.start(fmt.Sprintf("op-%016d", i), `{"rule":"read","policy":"ab12","workspace":"","purpose":"\"\""}`), 0)
		}
		require.NoError(tb, b.Refuse(ledger.Refusal{
			Reason: "POLICY_DENIED", Peer: peerID(2), Detail: name.Quote("policy: argument-refused (rule read, line 12)"), Count: uint64(i),
			Connector: must(name.ParseConnectorKey("fx")), Version: must(name.ParseVersion("1.0.0")), Command: must(name.ParseCommand("issue.list")),
		}))
	}
	require.NoError(tb, b.Close())
	return b
}

func BenchmarkNewest(b *testing.B) {
	book := many(b, 200_000)
	b.ResetTimer()
	for b.Loop() {
		got, _, err := book.view(Filter{}).Newest(50)
		require.NoError(b, err)
		require.Len(b, got, 50)
	}
}

func BenchmarkExport(b *testing.B) {
	book := many(b, 200_000)
	b.ReportAllocs()
	b.ResetTimer()
	records := 0
	for b.Loop() {
		lines := json.NewEncoder(io.Discard)
		require.NoError(b, book.view(Filter{}).Rest(func(r *Record) error {
			records++
			return lines.Encode(r)
		}))
	}
	b.ReportMetric(float64(records)/b.Elapsed().Seconds(), "records/s")
}

func BenchmarkVerify(b *testing.B) {
	book := many(b, 200_000)
	b.ResetTimer()
	for b.Loop() {
		v, err := Verify(book.dir, nil)
		require.NoError(b, err)
		require.True(b, v.OK)
	}
}
