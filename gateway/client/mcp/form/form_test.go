package form_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lendcli/lend/gateway/client/mcp/form"
	"github.com/lendcli/lend/protocol"
	"github.com/lendcli/lend/protocol/argv"
	"github.com/lendcli/lend/protocol/name"
)

// declarations have everything that a declaration can say.
var declarations = []string{`
arguments: [issue, list]
summary: list issues
rest: {max_items: 2, pattern: "[a-z]+"}
parameters:
  repo: {flag: --repo, aliases: [-R], required: true, enum: [a/b, c/d], description: where}
  limit: {flag: --limit, type: integer, minimum: 1, maximum: 100}
  ratio: {flag: -r, type: number}
  web: {flag: --web, type: boolean}
  all: {flag: -a, type: boolean}
  level: {flag: -l, type: integer, enum: [1, 2]}
  tag: {flag: --tag, repeat: 3, min_items: 2, pattern: "[a-z]+"}
  cols: {flag: --cols, separator: ",", max_items: 3, free_text: true}
  spaced: {flag: --spaced, render: space, free_text: true}
  golike: {flag: -golike, free_text: true}
  who: {position: 1, required: true, free_text: true, min_length: 2, max_length: 20}
  zone: {env: ACME_ZONE, const: eu}
  body: {stdin: {max_bytes: 20}}`, `
arguments: [x]
parameters:
  one: {position: 1, required: true, enum: [all, none]}
  more: {position: 2, max_items: 4, pattern: "(?i)[a-z]+"}
  any: {flag: --any, pattern: "\\pL+"}
  path: {flag: --path, kind: path}
  empty: {flag: --empty, free_text: true, min_length: 0}
  body: {stdin: {}, required: true, description: what is said}`, `
arguments: [y]
rest: {max_items: 3, pattern: "(?i)[a-z]+"}`, `arguments: [z]`}

func grammar(t require.TestingT, text string) *argv.Grammar {
	var d argv.Declaration
	require.NoError(t, yaml.Unmarshal([]byte(text), &d))
	n, err := name.ParseCommand("issue.list")
	require.NoError(t, err)
	c, err := d.Command(n)
	require.NoError(t, err)
	g, err := c.Compile(argv.Contract{Command: "gh", Environment: []string{"ACME_ZONE"}})
	require.NoError(t, err)
	return g
}

func read(t require.TestingT, schema string) *form.Form {
	f, err := form.Read(entry(t, schema))
	require.NoError(t, err)
	return f
}

func entry(t require.TestingT, schema string) protocol.CatalogEntry {
	n, err := name.ParseCommand("issue.list")
	require.NoError(t, err)
	return protocol.CatalogEntry{Command: n, InputSchema: json.RawMessage(schema)}
}

// A form shows the schema that it was read from.
func TestSchemaIsTheCatalogues(t *testing.T) {
	t.Parallel()
	for _, d := range declarations {
		schema := grammar(t, d).InputSchema()
		shown, err := read(t, string(schema)).Schema(false)
		require.NoError(t, err)
		require.JSONEq(t, string(schema), string(shown))
		shown, err = read(t, string(schema)).Schema(true)
		require.NoError(t, err)
		require.Contains(t, string(shown), `"connectorAuthority":{"description"`)
	}
}

// words are values that are good somewhere, and bad elsewhere.
var words = []string{
	`"a/b"`, `"x/y"`, `"abc"`, `"ab"`, `"a"`, `""`, `"-x"`, `"--web"`, `"-"`, `"@f"`, `"k=@f"`, `"a,b"`, `"\u001b"`, `"eu"`, `"all"`, `"ÄÖ"`, `"../x"`, `"a/../b"`,
	`1`, `2`, `0`, `-1`, `101`, `1.5`, `1e2`, `true`, `false`, `null`, `{}`, `[]`, `["a"]`, `["ab","cd"]`, `["ab","cd","ef"]`, `["a,b"]`, `["-x"]`, `[1]`,
}

// Whatever object is filled in: what the gateway's own grammar takes as an object, the
// form takes, and the arguments that come out mean the same to the gateway. What it
// refuses, one of the two refuses.
func TestFormIsTheGrammar(t *testing.T) {
	t.Parallel()
	names := []string{"repo", "limit", "ratio", "web", "all", "level", "tag", "cols", "spaced", "golike", "who", "zone", "body", "rest", "one", "more", "any", "path", "empty", "other"}
	rapid.Check(t, func(t *rapid.T) {
		g := grammar(t, rapid.SampledFrom(declarations).Draw(t, "declaration"))
		f := read(t, string(g.InputSchema()))
		members := []string{}
		for _, n := range rapid.SliceOfNDistinct(rapid.SampledFrom(names), 0, 7, rapid.ID[string]).Draw(t, "names") {
			members = append(members, `"`+n+`":`+rapid.SampledFrom(words).Draw(t, n))
		}
		if rapid.IntRange(0, 2).Draw(t, "complete") > 0 {
			for _, m := range []string{`"repo":"a/b"`, `"who":"me"`, `"one":"all"`, `"body":"b"`} {
				if n, _, _ := strings.Cut(m, ":"); !strings.Contains(strings.Join(members, ","), n+":") && g.InputSchema() != nil && strings.Contains(string(g.InputSchema()), n+":") {
					members = append(members, m)
				}
			}
		}
		object := []byte("{" + strings.Join(members, ",") + "}")
		want, wantErr := g.FromObject(object)
		args, input, err := f.Arguments(object)
		if err != nil {
			require.Error(t, wantErr, "%s: never narrower", object)
			return
		}
		got, err := g.Parse(args)
		if wantErr != nil {
			require.Error(t, err, "%s: the gateway refuses", object)
			return
		}
		require.NoError(t, err, "%s → %q", object, args)
		require.Equal(t, want.Input, input)
		want.Input = nil
		require.Equal(t, want, got)
	})
}

// A command that was declared anew since its invocation began has two schemas: both judge.
func TestBothSchemasJudge(t *testing.T) {
	t.Parallel()
	older := grammar(t, "arguments: [x]\nparameters: {a: {flag: --a, enum: [x, y]}, b: {flag: --b, free_text: true}}").InputSchema()
	newer := grammar(t, "arguments: [x]\nparameters: {a: {flag: --a, enum: [w, x]}, c: {flag: --c, free_text: true}}").InputSchema()
	both := `{"type":"object","allOf":[` + string(older) + `,` + string(newer) + `]}`
	f := read(t, both)
	args, _, err := f.Arguments([]byte(`{"a":"x"}`))
	require.NoError(t, err)
	require.Equal(t, []string{"--a=x"}, args)
	for _, object := range []string{`{"a":"y"}`, `{"a":"w"}`, `{"b":"1"}`, `{"c":"1"}`} {
		_, _, err := f.Arguments([]byte(object))
		require.Error(t, err)
	}
	shown, err := f.Schema(false)
	require.NoError(t, err)
	require.JSONEq(t, both, string(shown))
	shown, err = f.Schema(true)
	require.NoError(t, err)
	require.Equal(t, 2, strings.Count(string(shown), form.AuthorityKey))
}

// Entries of a gateway that means harm, or of another version: no form, no panic.
func TestReadRefuses(t *testing.T) {
	t.Parallel()
	const rest = `{"type":"array","items":{"type":"string","pattern":"^(?:[a-z]+)$"},"maxItems":2,"x-lend-place":{"rest":true}}`
	read(t, `{"type":"object","x-lend-arguments":["x"],"properties":{"a":`+rest+`}}`) // one is good
	for label, schema := range map[string]string{
		"none": ``, "false": `false`, "array": `[]`, "no-properties": `{"type":"object"}`, "no-type": `{"properties":{}}`,
		"another-type":   `{"type":"array","properties":{}}`,
		"bad-name":       `{"type":"object","properties":{"A b\u001b":{"type":"string","x-lend-place":{"position":1}}}}`,
		"no-place":       `{"type":"object","properties":{"a":{"type":"string"}}}`,
		"two-places":     `{"type":"object","properties":{"a":{"type":"string","x-lend-place":{"position":1,"flag":"--a"}}}}`,
		"huge-position":  `{"type":"object","properties":{"a":{"type":"string","x-lend-place":{"position":1e9}}}}`,
		"bad-flag":       `{"type":"object","properties":{"a":{"type":"string","x-lend-place":{"flag":"--a\u001b[2J"}}}}`,
		"flag-is-words":  `{"type":"object","properties":{"a":{"type":"string","x-lend-place":{"flag":"--a=b; rm"}}}}`,
		"same-flag":      `{"type":"object","properties":{"a":{"type":"string","x-lend-place":{"flag":"--a"}},"b":{"type":"string","x-lend-place":{"flag":"--a"}}}}`,
		"bad-pattern":    `{"type":"object","properties":{"a":{"type":"string","pattern":"^(?:(()$","x-lend-place":{"flag":"--a"}}}}`,
		"long-pattern":   `{"type":"object","properties":{"a":{"type":"string","pattern":"` + strings.Repeat("a", 2000) + `","x-lend-place":{"flag":"--a"}}}}`,
		"enum-of-others": `{"type":"object","properties":{"a":{"type":"string","enum":[1],"x-lend-place":{"flag":"--a"}}}}`,
		"enum-of-object": `{"type":"object","properties":{"a":{"type":"integer","enum":[{}],"x-lend-place":{"flag":"--a"}}}}`,
		"text":           `{"type":"object","description":"a\u001b[2Jb","properties":{}}`,
		"hidden-text":    `{"type":"object","properties":{"a":{"type":"string","description":"a\u202eb","x-lend-place":{"flag":"--a"}}}}`,
		"header":         `{"type":"object","properties":{"a":{"type":"object","x-mcp-header":7,"x-lend-place":{"flag":"--a"}}}}`,
		"many":           `{"type":"object","properties":{` + many(80) + `}}`,
		"three":          `{"allOf":[{"type":"object","properties":{}},{"type":"object","properties":{}},{"type":"object","properties":{}}]}`,
		"half-read":      `{"type":"object","properties":{},"required":5}`,
		"half":           `{"allOf":[{"type":"object","properties":{}},{"type":"object"}]}`,
		"rest-of-what":   `{"type":"object","properties":{"rest":{"type":"array","x-lend-place":{"rest":true}}}}`,
		"two-rests":      `{"type":"object","x-lend-arguments":["x"],"properties":{"a":` + rest + `,"b":` + rest + `}}`,
		"const-of-other": `{"type":"object","properties":{"a":{"type":"string","const":1,"x-lend-place":{"flag":"--a"}}}}`,
		"deep":           strings.Repeat(`{"items":`, 12000) + "1" + strings.Repeat("}", 12000),
	} {
		_, err := form.Read(entry(t, schema))
		require.ErrorIs(t, err, form.ErrForm, label)
		require.NotContains(t, err.Error(), "\x1b", label)
	}
}

// What is wrong is found where it is, not only by the grammar that is made of the rest.
func TestReadSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	for schema, want := range map[string]string{
		`{"type":"object","properties":{"a":{"type":"string"}}}`:                                               ": no place of a parameter",
		`{"type":"object","properties":{"a":{"type":"string","x-lend-place":"--a"}}}`:                          ": no place of a parameter",
		`{"type":"object","properties":{"a":{"type":"string","enum":[1],"x-lend-place":{"flag":"--a"}}}}`:      "",
		`{"type":"object","properties":{"a":{"type":"string","const":{},"x-lend-place":{"flag":"--a"}}}}`:      "",
		`{"type":"object","properties":{"A b":{"type":"string","pattern":"a","x-lend-place":{"flag":"--a"}}}}`: ": " + nameError(),
	} {
		_, err := form.Read(entry(t, schema))
		require.EqualError(t, err, form.ErrForm.Error()+want, schema)
	}
}

func nameError() string {
	_, err := name.ParseParameter("A b")
	return err.Error()
}

func many(n int) string {
	var out []string
	for i := range n {
		p := "p" + strings.Repeat("a", i%30+1) + string(rune('a'+i/30))
		out = append(out, `"`+p+`":{"type":"boolean","x-lend-place":{"flag":"--`+p+`"}}`)
	}
	return strings.Join(out, ",")
}

func TestTakeAuthority(t *testing.T) {
	t.Parallel()
	for object, want := range map[string]string{
		`{"connectorAuthority":"caller"}`:                         "caller {}",
		`{"a":1,"connectorAuthority":"owner","a":2}`:              `owner {"a":1,"a":2}`,
		`{"connector\u0041uthority":"caller","b":{"c":[1,2]}}`:    `caller {"b":{"c":[1,2]}}`,
		`{"a":{"connectorAuthority":"root"}}`:                     ` {"a":{"connectorAuthority":"root"}}`,
		`{"CONNECTORAUTHORITY":"caller"}`:                         ` {"CONNECTORAUTHORITY":"caller"}`,
		`[{"connectorAuthority":"caller"}]`:                       ` [{"connectorAuthority":"caller"}]`,
		`{"a":1e1000,"connectorAuthority":"owner","s":"<\u2028"}`: `owner {"a":1e1000,"s":"<\u2028"}`,
		``:                                " ",
		`{}`:                              " {}",
		`{"connectorAuthority":"Caller"}`: "-", `{"connectorAuthority":""}`: "-", `{"connectorAuthority":null}`: "-", `{"connectorAuthority":1}`: "-",
		`{"connectorAuthority":"owner","connectorAuthority":"owner"}`: "-",
	} {
		rest, whose, err := form.TakeAuthority([]byte(object))
		if want == "-" {
			require.ErrorIs(t, err, form.ErrAuthority, object)
			continue
		}
		require.NoError(t, err, object)
		require.Equal(t, want, whose+" "+string(rest), object)
	}
}

func FuzzRead(f *testing.F) {
	for _, d := range declarations {
		f.Add(string(grammar(f, d).InputSchema()), `{"repo":"a/b","who":"me","connectorAuthority":"owner"}`)
	}
	f.Fuzz(func(t *testing.T, schema, object string) {
		if len(schema) > 64<<10 {
			return
		}
		fm, err := form.Read(entry(t, schema))
		if err != nil {
			require.Nil(t, fm)
			return
		}
		shown, err := fm.Schema(true)
		require.NoError(t, err)
		require.True(t, json.Valid(shown))
		rest, _, err := form.TakeAuthority(json.RawMessage(object))
		if err != nil {
			return
		}
		args, _, err := fm.Arguments(rest)
		if err != nil {
			require.Nil(t, args)
		}
	})
}
