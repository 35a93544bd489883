package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/gateway/client/broker"
	"github.com/lendcli/lend/protocol/name"
)

func completedWords(all []cobra.Completion) (out []string) {
	for _, c := range all {
		word, _, _ := strings.Cut(c, "\t")
		out = append(out, word)
	}
	return out
}

const completionSchema = `{"type":"object","x-lend-arguments":["issue","list"],"properties":{
  "state":{"enum":["open","closed"],"x-lend-place":{"flag":"--state","aliases":["-s"]}},
  "dry":{"type":"boolean","x-lend-place":{"flag":"--dry"}},
  "sort":{"enum":["up","down"],"x-lend-place":{"position":1}},
  "then":{"enum":["left"],"x-lend-place":{"position":2}}}}`

func TestCompleteParameters(t *testing.T) {
	e := entry(t, completionSchema)
	for _, c := range []struct {
		args   string
		prefix string
		want   []string
	}{
		{"", "-", []string{"--dry", "--state", "-s"}},
		{"", "--state=", []string{"--state=closed", "--state=open"}},
		{"", "-s=c", []string{"-s=closed"}},
		{"--state", "", []string{"closed", "open"}},
		{"--state", "o", []string{"open"}},
		{"--dry", "u", []string{"up"}},
		{"--state open", "d", []string{"down"}},
		{"--state=open up", "l", []string{"left"}},
		{"up left", "x", nil},
		{"", "--dry=", nil},
	} {
		got := those(completeParameters(e, strings.Fields(c.args), c.prefix), c.prefix)
		require.Equal(t, c.want, completedWords(got), "%q %q", c.args, c.prefix)
	}
	require.Empty(t, completeParameters(entry(t, `false`), nil, ""))
}

func TestCompleteNative(t *testing.T) {
	lines := []broker.Lent{
		{Entry: entry(t, completionSchema)}, {Entry: entry(t, `{"x-lend-arguments":["issue","view"]}`)}, {Entry: entry(t, `{"x-lend-arguments":["pr","list"]}`)},
	}
	key := lines[0].Entry.Connector
	other, err := name.ParseConnectorKey("other")
	require.NoError(t, err)
	require.Equal(t, []string{"issue", "pr"}, completedWords(completeNative(lines, key, nil, "")))
	require.Equal(t, []string{"list", "view"}, completedWords(completeNative(lines, key, []string{"issue"}, "")))
	require.Equal(t, []string{"--state", "-s"}, completedWords(completeNative(lines, key, []string{"issue", "list", "--dry"}, ""))[1:3])
	require.Empty(t, completeNative(lines, key, []string{"nothing"}, ""))
	require.Empty(t, completeNative(lines, other, nil, ""))
}

// What a gateway sends lands on a command line only if a shell takes it for a word.
func TestCompletionOffersWordsAlone(t *testing.T) {
	evil := []string{`$(x)`, "a b", "a;b", "`x`", "a\tb", "a\nb", "\x1b[2J", "~", "*", "'", `"`, `\`, "", "#", "&", "|", ">", "é", "!x"}
	for _, w := range evil {
		require.Empty(t, offered(w, ""), "%q", w)
	}
	require.Equal(t, []string{"--state=open,closed"}, completedWords(offered("--state=open,closed", "text\x1b")))
	e := entry(t, `{"type":"object","x-lend-arguments":["$(x)"],"properties":{"a":{"enum":["$(x)","fine"],"x-lend-place":{"flag":"--a","aliases":["-$(x)"]}}}}`)
	require.Equal(t, []string{"fine"}, completedWords(completeParameters(e, []string{"--a"}, "")))
	require.Equal(t, []string{"--a"}, completedWords(completeParameters(e, nil, "-")))
	require.Empty(t, completeNative([]broker.Lent{{Entry: e}}, e.Connector, nil, ""))
}

func TestTyped(t *testing.T) {
	words, current, ok := typed("gh issue list --st --x", "18")
	require.True(t, ok)
	require.Equal(t, []string{"issue", "list"}, words)
	require.Equal(t, "--st", current)
	words, current, ok = typed("gh ", "3")
	require.True(t, ok)
	require.Empty(t, words)
	require.Empty(t, current)
	for _, c := range [][2]string{{"gh", "2"}, {"gh x", "5"}, {"gh x", "-1"}, {"gh x", ""}, {"gh 'x", "5"}, {"gh $(x) ", "8"}, {"", "0"}} {
		_, _, ok = typed(c[0], c[1])
		require.False(t, ok, c)
	}
}

// A broker that is not there, or that never answers, holds nobody up.
func TestCompletionWithoutBroker(t *testing.T) {
	t.Setenv("LEND_DIR", t.TempDir())
	t.Setenv("LEND_LEASE", "")
	t.Setenv("LEND_LEASE_FILE", "")
	for _, session := range []string{"", "x", "handle:/nowhere/b", "handle:relative"} {
		t.Setenv(sessionVariable, session)
		require.Empty(t, lentHere())
		got, _ := completed(t, "run", "fx", "print", "")
		require.Empty(t, got)
	}
}
