package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/gateway/admin"
	"github.com/lendcli/lend/gateway/audit"
	"github.com/lendcli/lend/gateway/client/broker"
)

func shownTable(t *testing.T, rows [][]string) string {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, newApp(nil, strings.NewReader(""), &out, &out).table(rows))
	return out.String()
}

func TestNoLineEndsInBlanks(t *testing.T) {
	for line := range strings.Lines(shownTable(t, [][]string{{"A", "B", ""}, {"x", "", ""}, {"long", "y", "  "}, {""}})) {
		require.Equal(t, strings.TrimRight(line, " \n")+"\n", line)
	}
	rows := deniedRows(&admin.Status{Lockdown: &admin.Lockdown{On: true}})
	require.Len(t, rows[0], 2, "no reason, no column")
}

func TestOneAndMany(t *testing.T) {
	require.Equal(t, "0 records", count(0, "record", "records"))
	require.Equal(t, "1 record", count(uint64(1), "record", "records"))
	require.Equal(t, "2 records", count(int64(2), "record", "records"))
	one := shownTable(t, verdictRows(audit.Verdict{From: 1, Records: 2, Segments: 1, Starts: 1, Ends: 1, Refusals: 1, Events: 1, Closed: 1, TornTail: 1, KeptElsewhere: 1, NotCovered: 1}))
	for _, want := range []string{
		"record 1 in 1 file\n", "1 start, 1 end, 0 not started, 0 unknown, 0 running, 1 refusal, 1 event\n",
		"record 0, of 1 invocation, which starts nothing more\n", "1 byte behind", "the last record: who has",
	} {
		require.Contains(t, one, want)
	}
	many := shownTable(t, verdictRows(audit.Verdict{Records: 7, Segments: 2, Starts: 2, KeptElsewhere: 1, NotCovered: 6}))
	require.Contains(t, many, "records 0 to 6 in 2 files\n")
	require.Contains(t, many, "2 starts, 0 ends,")
	require.Contains(t, many, "the last 6 records: who has")
	status := shownTable(t, append(deniedRows(&admin.Status{Revocations: admin.Revocations{Entries: 1}}), ledgerRows(admin.Ledger{Records: 1, TornTail: 1, Unknown: 1})...))
	for _, want := range []string{"1 revocation is kept\n", "1 record\n", "of 1 byte was", "1 operation had no end"} {
		require.Contains(t, status, want)
	}
}

func TestStatusWithoutGatewaySaysWhatTheNextOneDenies(t *testing.T) {
	dir := t.TempDir()
	status := func() string {
		code, out, errs := lend(t, dir, "status")
		require.Equal(t, 1, code)
		require.Empty(t, out)
		return errs
	}
	require.Equal(t, "lend: error: no gateway is running here\nlend: hint: lend serve\n", status(), "nothing is lost before lend init")
	code, _, errs := lend(t, dir, "init")
	require.Zero(t, code, "%s", errs)
	require.Equal(t, "lend: error: no gateway is running here\nlend: hint: lend serve\n", status())
	require.NoError(t, os.Remove(filepath.Join(dir, "revocations")))
	require.Contains(t, status(), "no gateway is running here; the revocations are not readable, so everything is revoked")
	code, _, errs = lend(t, dir, "lockdown", "--why", "stolen")
	require.Zero(t, code, "%s", errs)
	require.Regexp(t, `here; LOCKED DOWN since .*: stolen; the revocations are not readable`, status())
	require.Contains(t, status(), "hint: lend unlock --help, then lend serve")
}

// TestLeasesThatAreNotListed: who does not see all of them is told how many are missing.
func TestLeasesThatAreNotListed(t *testing.T) {
	var out, errs bytes.Buffer
	a := newApp(nil, strings.NewReader(""), &out, &errs)
	st := &broker.Status{Sessions: []broker.SessionShown{{Invocation: "i-1", Leases: []broker.LeaseShown{{ID: "one"}}}}}
	require.NoError(t, a.printSessions(st))
	require.Contains(t, out.String(), "i-1")
	require.Empty(t, errs.String())
	st.More = 1234
	require.NoError(t, a.printSessions(st))
	require.Equal(t, "lend: and 1234 more, which do not fit into one answer\n", errs.String())
}

// What a command comes to several times is told once.
func TestNoteOnce(t *testing.T) {
	var errs bytes.Buffer
	a := newApp(nil, strings.NewReader(""), io.Discard, &errs)
	for range 2 {
		a.noteOnce("lend: %s is 100%%", "one")
	}
	a.noteOnce("lend: two")
	require.Equal(t, "lend: one is 100%\nlend: two\n", errs.String())
}

func TestMessagesHaveNoUserOfAURL(t *testing.T) {
	for in, want := range map[string]string{
		"":             "",
		"no url: a@b":  "no url: a@b",
		"https://h/@p": "https://h/@p",
		"open \"https://u:p@h/x\" and ftp://u@h: x": "open \"https://xxxxx@h/x\" and ftp://xxxxx@h: x",
		"https://u:p@q@h/@p":                        "https://xxxxx@h/@p",
		"https://u:p/q@h/":                          "https://xxxxx@h/",
		"https://u:p#q@h/":                          "https://xxxxx@h/",
		"https://u:p?q@h/ https://u:p?q@h/":         "https://xxxxx@h/ https://xxxxx@h/",
		"http://localhost:4873/@p/q: 404":           "http://localhost:4873/@p/q: 404",
		"http://[::1]:4873/@p/q":                    "http://[::1]:4873/@p/q",
		"http://h:none/":                            "http://h:none/",
		"://u@h ://":                                "://xxxxx@h ://",
	} {
		require.Equal(t, want, withoutUsers(in))
	}
	var out, errs bytes.Buffer
	a := newApp(nil, strings.NewReader(""), &out, &errs)
	a.json = true
	require.Equal(t, 1, a.fail(hintf("see https://u:canary@h", "https://u:canary@h is wrong")))
	require.Equal(t, 125, a.failRun(hintf("see https://u:canary@h", "https://u:canary@h is wrong"), 125))
	a.note("https://u:canary@h")
	require.NotContains(t, out.String()+errs.String(), "canary")
}
