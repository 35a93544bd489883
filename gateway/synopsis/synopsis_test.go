package synopsis_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/gateway/synopsis"
	"github.com/lendcli/lend/protocol"
	"github.com/lendcli/lend/protocol/argv"
	"github.com/lendcli/lend/protocol/name"
)

const declaration = `
arguments: [issue, list]
summary: list issues
rest: {max_items: 2, pattern: "[a-z]+"}
parameters:
  repo: {flag: --repo, aliases: [-R], required: true, enum: [a/b, c/d], description: where}
  limit: {flag: --limit, type: integer, minimum: 1, maximum: 100}
  web: {flag: --web, type: boolean}
  level: {flag: -l, type: integer, enum: [1, 2]}
  tag: {flag: --tag, repeat: 3, min_items: 2, pattern: "[a-z]+"}
  cols: {flag: --cols, separator: ",", max_items: 3, free_text: true}
  who: {position: 1, required: true, free_text: true, min_length: 2, max_length: 20}
  zone: {env: ACME_ZONE, const: eu}
  body: {stdin: {max_bytes: 20}}`

// schemaOf is what a gateway says of a declaration.
func schemaOf(t *testing.T, text string) json.RawMessage {
	t.Helper()
	var d argv.Declaration
	require.NoError(t, yaml.Unmarshal([]byte(text), &d))
	n, err := name.ParseCommand("issue.list")
	require.NoError(t, err)
	c, err := d.Command(n)
	require.NoError(t, err)
	g, err := c.Compile(argv.Contract{Command: "gh", Environment: []string{"ACME_ZONE"}})
	require.NoError(t, err)
	return g.InputSchema()
}

func read(t *testing.T, schema string) []synopsis.Parameter {
	t.Helper()
	p, err := synopsis.Read(protocol.CatalogEntry{InputSchema: json.RawMessage(schema)})
	require.NoError(t, err)
	return p
}

// Everything that a caller may say is there, in the spelling that the gateway takes.
func TestReadWhatAGatewayWrites(t *testing.T) {
	t.Parallel()
	var usage, names []string
	byName := map[string]synopsis.Parameter{}
	for _, p := range read(t, string(schemaOf(t, declaration))) {
		names = append(names, p.Name.String())
		byName[p.Name.String()] = p
		if u := p.Usage(); u != "" {
			usage = append(usage, u)
		}
	}
	require.Equal(t, "cols level limit repo tag web zone who rest body", strings.Join(names, " "))
	require.Equal(t, "[--cols=COLS...] [-l LEVEL] [--limit=LIMIT] --repo=REPO [--tag=TAG...] [--web] [--zone=eu] WHO [REST...]", strings.Join(usage, " "))
	require.Equal(t, []string{"a/b", "c/d"}, byName["repo"].Values)
	require.Equal(t, []string{"-R"}, byName["repo"].Aliases)
	require.Equal(t, "where", byName["repo"].Description)
	require.Equal(t, []string{"1", "2"}, byName["level"].Values)
	require.Equal(t, []string{"at least 1", "at most 100"}, byName["limit"].Bounds)
	require.Equal(t, []string{"at least 2 characters", "at most 20 characters"}, byName["who"].Bounds)
	require.Equal(t, []string{"matches [a-z]+"}, byName["tag"].Bounds)
	require.Equal(t, ",", byName["cols"].Separator)
	require.True(t, byName["rest"].Rest)
	require.Equal(t, 2, byName["rest"].MaxItems)
	require.True(t, byName["body"].Stdin)
	require.Equal(t, []string{"at most 20 characters"}, byName["body"].Bounds)
	require.Equal(t, "boolean", byName["web"].Type)
}

// A command that was re-declared since its invocation was frozen has two schemas:
// what both accept is what is shown.
func TestReadNarrows(t *testing.T) {
	t.Parallel()
	older := `{"type":"object","required":["a"],"properties":{"a":{"type":"string","enum":["x","y","z"]},"b":{"type":"string"}}}`
	newer := `{"type":"object","properties":{"a":{"type":"string","enum":["w","x","y"],"allOf":[{"enum":["y","x"]},{"const":"y"}],"pattern":"[a-z]"},"c":{"type":"string"}}}`
	p := read(t, `{"type":"object","allOf":[`+older+`,`+newer+`]}`)
	require.Len(t, p, 1)
	require.Equal(t, []string{"y"}, p[0].Values)
	require.Equal(t, []string{"matches [a-z]"}, p[0].Bounds)
	require.True(t, p[0].Required)
	require.Equal(t, "y", p[0].Usage(), "a place that is not said is none")
	p = read(t, `{"properties":{"a":{"enum":["x"],"allOf":[{"enum":["y"]}]}}}`)
	require.Empty(t, p[0].Values)
	require.NotNil(t, p[0].Values, "nothing is accepted, which is not everything")
}

func TestReadRefuses(t *testing.T) {
	t.Parallel()
	for label, c := range map[string]struct {
		schema string
		want   error
	}{
		"none":          {``, synopsis.ErrNoSchema},
		"no-properties": {`{"type":"object"}`, synopsis.ErrNoSchema},
		"false":         {`false`, synopsis.ErrSchema},
		"array":         {`[]`, synopsis.ErrSchema},
		"bad-name":      {`{"properties":{"A b\u001b":{}}}`, synopsis.ErrSchema},
		"not-an-object": {`{"properties":{"a":true}}`, synopsis.ErrSchema},
		"many":          {`{"properties":{` + many(600) + `}}`, synopsis.ErrSchema},
	} {
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			_, err := synopsis.Read(protocol.CatalogEntry{InputSchema: json.RawMessage(c.schema)})
			require.ErrorIs(t, err, c.want)
			require.NotContains(t, err.Error(), "\x1b")
		})
	}
	p := read(t, `{"properties":{"a":{"x-lend-place":{"position":-1}},"b":{"x-lend-place":"--b"},"c":{"x-lend-place":{"position":1e9}}}}`)
	for _, q := range p {
		require.Zero(t, q.Position)
		require.Empty(t, q.Flag)
	}
}

func many(n int) string {
	var out []string
	for i := range n {
		out = append(out, `"p`+strings.Repeat("a", i%30+1)+string(rune('a'+i/30))+`":{}`)
	}
	return strings.Join(out, ",")
}
