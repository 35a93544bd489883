package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const recordingPolicy = head + `commands:
  tool:
    issue.list:
      effect: read
      arguments: [issue, list]
      parameters:
        repo: {flag: --repo, enum: [acme/site]}
        host: {env: TOOL_HOST, enum: [a.example, b.example]}
        token: {env: TOOL_TOKEN, secret: true, pattern: "[a-z]+"}
    issue.note:
      arguments: [issue, note]
      parameters:
        title: {flag: --title, free_text: true}
        body: {stdin: {max_bytes: 100}}
allow:
  - name: r
    to: [maria-laptop]
    connector: tool
    version: "1"
    commands: {issue.list: {}, issue.note: {}}
`

func TestRecordArguments(t *testing.T) {
	digest := func(parts ...[]byte) [32]byte { return sha256.Sum256([]byte(strings.Join(bytesToStrings(parts), "|"))) }
	r := toolRequest("issue.list", "--repo", "acme/site", "--host", "b.example", "--token", "hunter")
	plain := mustParse(t, recordingPolicy)
	d := plain.Decide(r, envSource())
	require.True(t, d.Allowed, "%v", d.Err)
	require.False(t, d.RecordArguments)
	arguments, variables := d.Recorded(digest)
	require.Nil(t, arguments)
	require.Nil(t, variables)

	p := mustParse(t, recordingPolicy+"    record_arguments: [issue.list]\n")
	// What is recorded is for the policy of now to say, also of an invocation that began before.
	for _, d := range []Decision{p.Decide(r, envSource()), p.DecideWithin(freezeWith(t, plain, r), r, envSource())} {
		require.True(t, d.Allowed, "%v", d.Err)
		require.True(t, d.RecordArguments)
		arguments, variables = d.Recorded(digest)
		require.Equal(t, d.Call.Arguments, arguments)
		require.Equal(t, []string{"issue", "list", "--repo=acme/site"}, arguments)
		sum := digest([]byte("variable"), []byte("TOOL_TOKEN"), []byte("hunter"))
		require.Equal(t, map[string]string{"TOOL_HOST": "b.example", "TOOL_TOKEN": "digest:" + hex.EncodeToString(sum[:])}, variables)
		_, variables = d.Recorded(nil)
		require.Equal(t, map[string]string{"TOOL_HOST": "b.example"}, variables)
		d.Allowed = false
		arguments, _ = d.Recorded(digest)
		require.Nil(t, arguments)
	}
	note := p.Decide(toolRequest("issue.note", "--title", "x"), envSource())
	require.True(t, note.Allowed, "%v", note.Err)
	require.False(t, note.RecordArguments, "the other command of the rule is not recorded")
}

// envSource is a Connector that lets parameters set these variables.
func envSource() fakeContracts {
	return fakeContracts{"tool@1": {Command: "tool", Environment: []string{"TOOL_HOST", "TOOL_TOKEN"}}}
}

func bytesToStrings(parts [][]byte) (out []string) {
	for _, p := range parts {
		out = append(out, string(p))
	}
	return out
}

func freezeWith(t *testing.T, p *Policy, r Request) []*Surface {
	t.Helper()
	return p.Freeze(r.Issuer, r.Peer, r.Now, []Target{targetOf(r)}, envSource())
}

func TestRecordArgumentsIsStrict(t *testing.T) {
	for says, line := range map[string]string{
		`no command of the rule is named "issue.lits"`: "record_arguments: [issue.lits]",
		"is an empty list":  "record_arguments: []",
		"must be a list":    "record_arguments: true",
		"in the list twice": "record_arguments: [issue.list, issue.list]",
	} {
		_, err := Parse("policy.yaml", []byte(recordingPolicy+"    "+line+"\n"))
		var problems Problems
		require.ErrorAs(t, err, &problems, line)
		require.ErrorContains(t, err, says)
	}
}

func TestRecordArgumentsLint(t *testing.T) {
	warnings := func(text string) (out []string) {
		for _, f := range mustParse(t, text).Lint(envSource()) {
			if strings.Contains(f.Message, "record") {
				out = append(out, f.Message)
			}
		}
		return out
	}
	require.Empty(t, warnings(recordingPolicy))
	require.Empty(t, warnings(recordingPolicy+"    record_arguments: [issue.list]\n"))
	got := warnings(recordingPolicy + "    record_arguments: [issue.list, issue.note]\n")
	require.Equal(t, []string{"tool issue.note: what callers say in title, any text at all, is kept in the record"}, got)
	said := strings.Join(mustParse(t, recordingPolicy+"    record_arguments: [issue.note]\n").Access(envSource()), "\n")
	require.Equal(t, 1, strings.Count(said, "The arguments are recorded."))
	require.Regexp(t, `tool issue\.note .*The arguments are recorded\.`, said)
	rest := strings.Replace(recordingPolicy, "arguments: [issue, list]", "arguments: [issue, list]\n      rest: {max_items: 3, pattern: \"[a-z]+\"}", 1)
	require.True(t, slices.Contains(warnings(rest+"    record_arguments: [issue.list]\n"), "tool issue.list: the open-ended tail of arguments is kept in the record"))
}
