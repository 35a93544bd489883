package review

import (
	"encoding/json"
	"errors"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/policy/file"
	"github.com/lendcli/lend/protocol/argv"
	"github.com/lendcli/lend/protocol/name"
)

var update = flag.Bool("update", false, "rewrite golden files")

type contracts map[string]argv.Contract

func (c contracts) Contract(key name.ConnectorKey, _ name.Version, _ name.ConnectionID) (argv.Contract, string, error) {
	found, ok := c[key.String()]
	if !ok {
		return argv.Contract{}, "", errors.New("no such route")
	}
	return found, "sha256:x", nil
}

func risky(t *testing.T) (*file.File, contracts) {
	t.Helper()
	a, err := txtar.ParseFile("testdata/risky.txtar")
	require.NoError(t, err)
	require.Len(t, a.Files, 2)
	f, err := file.Parse("policy.yaml", a.Files[0].Data)
	require.NoError(t, err)
	var forms map[string]struct {
		Command  string                      `json:"command"`
		Commands map[string]argv.Declaration `json:"commands"`
	}
	require.NoError(t, json.Unmarshal(a.Files[1].Data, &forms))
	source := contracts{}
	for key, form := range forms {
		c := argv.Contract{Command: form.Command}
		for n, d := range form.Commands {
			parsed, err := name.ParseCommand(n)
			require.NoError(t, err)
			command, err := d.Command(parsed)
			require.NoError(t, err)
			c.Commands = append(c.Commands, command)
		}
		source[key] = c
	}
	return f, source
}

func compare(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), got)
}

func TestRiskyPolicy(t *testing.T) {
	f, source := risky(t)
	var b strings.Builder
	last := 0
	for _, finding := range Lint(f, source) {
		require.GreaterOrEqual(t, finding.Position.Line, last, "findings come in the order of the file")
		last = finding.Position.Line
		b.WriteString(finding.String() + "\n")
	}
	compare(t, "testdata/risky.lint", b.String())
	compare(t, "testdata/risky.access", strings.Join(Access(f, source), "\n")+"\n")
}

func TestLintTwiceIsTheSame(t *testing.T) {
	f, source := risky(t)
	findings, access := Lint(f, source), Access(f, source)
	for range 5 {
		require.Equal(t, findings, Lint(f, source))
		require.Equal(t, access, Access(f, source))
	}
}

// Without contracts, what the file declares is looked at all the same.
func TestWithoutContracts(t *testing.T) {
	f, _ := risky(t)
	var text strings.Builder
	for _, finding := range Lint(f, nil) {
		text.WriteString(finding.String() + "\n")
	}
	require.Contains(t, text.String(), "no rule allows the command shell unused")
	require.Contains(t, text.String(), "python script: python is an interpreter")
	require.NotContains(t, text.String(), "no current route")
	require.Contains(t, strings.Join(Access(f, nil), "\n"), "maria-laptop, under leases of owner, may run shell run (version 1): as its Connector declares.")
}

func TestFindingString(t *testing.T) {
	f, source := risky(t)
	first := Lint(f, source)[0]
	require.Equal(t, "policy.yaml:3:96: warning: leases may live for 8h: a stolen key is good for as long (1h or less)", first.String())
	first.Hint = ""
	require.NotContains(t, first.String(), "(")
}

func TestMergedSchemas(t *testing.T) {
	five, seven := 5.0, 7.0
	long, short := 9, 3
	a := "a"
	for want, schemas := range map[string][]argv.Schema{
		`"a"`:                     {{Enum: []string{"a", "b"}}, {Const: &a}},
		`one of "a", "b"`:         {{Pattern: "[a-z]"}, {Enum: []string{"a", "b"}}},
		"5 to 7":                  {{Minimum: &five}, {Maximum: &seven}},
		"7 or more":               {{Minimum: &five}, {Minimum: &seven}},
		"5 or less":               {{Maximum: &five}, {Maximum: &seven}},
		"up to 3 characters":      {{MaxLength: &long}, {MaxLength: &short}},
		`matching "x and y"`:      {{Pattern: "x"}, {Pattern: "y"}},
		"any text":                {{FreeText: true}},
		"a path in the workspace": {{Kind: argv.KindPath}, {Pattern: "x"}},
		"":                        {{}},
	} {
		require.Equal(t, want, schemaText(merged(schemas)))
	}
}

// A rule that leaves a parameter nothing to be is an error, not a silent refusal
// of every call.
func TestRuleThatLeavesNothing(t *testing.T) {
	const text = `policy: 1
issuers: {owner: {id: 12D3KooWEwHSuGRGT6ZpLtynu53u829CRZYrSxbUmhiJJs4mwyt4, connectors: any}}
peers: {laptop: 12D3KooWH2Zoo9X8rLtZaVANHvjjDFSR64ye2cQWNeYtvBZiaB2j}
commands:
  tool:
    list:
      effect: read
      arguments: [list]
      parameters:
        repo: {flag: --repo, enum: [acme/site]}
        limit: {flag: --limit, type: integer, maximum: 9}
allow:
  - {name: r, to: [laptop], connector: tool, version: "1", commands: {list: NARROW}}
`
	for narrow, want := range map[string]bool{
		"{}":                                false,
		"{repo: acme/site}":                 false,
		"{repo: other/x}":                   true,
		"{repo: {enum: [other/x]}}":         true,
		"{limit: {minimum: 10}}":            true,
		"{limit: {minimum: 9}}":             false,
		"{repo: {forbidden: true}}":         false,
		"{repo: [acme/site, other/x]}":      false,
		"{limit: {minimum: 3, maximum: 3}}": false,
	} {
		f, err := file.Parse("policy.yaml", []byte(strings.Replace(text, "NARROW", narrow, 1)))
		require.NoError(t, err, narrow)
		found := false
		for _, finding := range Lint(f, contracts{"tool": {Command: "tool"}}) {
			found = found || finding.Level == LevelError && strings.Contains(finding.Message, "accepts nothing")
		}
		require.Equal(t, want, found, narrow)
	}
}
