package argv_test

import (
	"crypto/sha256"
	"encoding/hex"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/protocol/argv"
	"github.com/lendcli/lend/protocol/name"
)

func narrowRepo(tb testing.TB) map[name.Parameter]argv.Narrowing {
	tb.Helper()
	return map[name.Parameter]argv.Narrowing{mustParameter(tb, "repo"): {Schema: &argv.Schema{Enum: []string{"a/b"}}}}
}

// goldenContract has every field that Semantics speaks of.
func goldenContract(tb testing.TB) argv.Contract {
	tb.Helper()
	doc := `{summary: words, effect: read, arguments: [issue, list], timeout: 1m30s, end_of_options: true, rest: {max_items: 2, pattern: "[a-z]"},
	  parameters: {
	    repo: {flag: --repo, aliases: [-R, --in], required: true, enum: [b/b, a/a], description: words},
	    tag: {flag: --tag, render: space, repeat: 3, min_items: 1, pattern: "[a-z]", min_length: 1, max_length: 9},
	    cols: {flag: --cols, separator: ",", max_items: 4, free_text: true},
	    rate: {flag: --rate, type: number, minimum: -0.5, maximum: 1},
	    who: {position: 1, required: true, kind: path},
	    body: {stdin: {text: true}},
	    key: {env: ACME_A, secret: true, const: k}}}`
	list := declare(tb, doc)
	list.Name = mustCommand(tb, "issue.list")
	ping := declare(tb, `{arguments: [ping]}`)
	ping.Name = mustCommand(tb, "ping")
	c := argv.Contract{
		Command: "gh", Arguments: []string{"--no-pager"}, Environment: []string{"ACME_B", "ACME_A"}, Timeout: 2 * time.Minute,
		Commands: []argv.Command{list, ping},
	}
	require.NoError(tb, c.Validate())
	return c
}

// TestSemanticsGolden: this text may never change for a contract that does not
// mean something else. Every installed release would get another contract hash.
func TestSemanticsGolden(t *testing.T) {
	const want = `{"arguments":["--no-pager"],"command":"gh","commands":{` +
		`"issue.list":{"arguments":["issue","list"],"effect":"read","end_of_options":true,"parameters":{` +
		`"body":{"required":false,"schemas":[{"type":"string"}],"secret":false,"stdin":{"max_bytes":1048576,"text":true}},` +
		`"cols":{"flag":{"aliases":[],"name":"--cols","render":"equals","repeat":false,"separator":","},"list":{"max_items":4,"min_items":0},"required":false,"schemas":[{"type":"string"}],"secret":false},` +
		`"key":{"env":"ACME_A","required":false,"schemas":[{"const":"k","type":"string"}],"secret":true},` +
		`"rate":{"flag":{"aliases":[],"name":"--rate","render":"equals","repeat":false,"separator":""},"required":false,"schemas":[{"maximum":1,"minimum":-0.5,"type":"number"}],"secret":false},` +
		`"repo":{"flag":{"aliases":["--in","-R"],"name":"--repo","render":"equals","repeat":false,"separator":""},"required":true,"schemas":[{"enum":["a/a","b/b"],"type":"string"}],"secret":false},` +
		`"tag":{"flag":{"aliases":[],"name":"--tag","render":"space","repeat":true,"separator":""},"list":{"max_items":3,"min_items":1},"required":false,"schemas":[{"max_length":9,"min_length":1,"pattern":"[a-z]","type":"string"}],"secret":false},` +
		`"who":{"position":1,"required":true,"schemas":[{"kind":"path","type":"string"}],"secret":false}},` +
		`"rest":{"max_items":2,"pattern":"[a-z]"},"timeout_ms":90000},` +
		`"ping":{"arguments":["ping"],"effect":"write","end_of_options":false,"parameters":{},"timeout_ms":0}},` +
		`"environment":["ACME_A","ACME_B"],"timeout_ms":120000}`
	got := canonical(t, goldenContract(t).Semantics())
	require.Zero(t, strings.Compare(want, got), got)
	sum := sha256.Sum256([]byte(got))
	require.Equal(t, "54e986de2f49d19dcc4444913f03330e339d3136ad11669c6de77bd9685305c1", hex.EncodeToString(sum[:]))
}

// TestSemanticsIgnores what has no effect on an invocation.
func TestSemanticsIgnores(t *testing.T) {
	want := canonical(t, goldenContract(t).Semantics())
	for label, change := range map[string]func(c *argv.Contract){
		"summary":            func(c *argv.Contract) { c.Commands[0].Description = "others" },
		"description":        func(c *argv.Contract) { c.Commands[0].Parameters[4].Description = "others" },
		"order-of-commands":  func(c *argv.Contract) { c.Commands[0], c.Commands[1] = c.Commands[1], c.Commands[0] },
		"order-of-params":    func(c *argv.Contract) { p := c.Commands[0].Parameters; p[0], p[3] = p[3], p[0] },
		"order-of-aliases":   func(c *argv.Contract) { a := c.Commands[0].Parameters[4].Flag.Aliases; a[0], a[1] = a[1], a[0] },
		"order-of-enum":      func(c *argv.Contract) { e := c.Commands[0].Parameters[4].Schemas[0].Enum; e[0], e[1] = e[1], e[0] },
		"order-of-variables": func(c *argv.Contract) { c.Environment = []string{"ACME_A", "ACME_B"} },
		"default-render":     func(c *argv.Contract) { c.Commands[0].Parameters[4].Flag.Render = argv.RenderEquals },
		"default-effect":     func(c *argv.Contract) { c.Commands[1].Effect = argv.EffectWrite },
		"default-stdin":      func(c *argv.Contract) { c.Commands[0].Parameters[0].Stdin.MaxBytes = 1 << 20 },
		"free-text":          func(c *argv.Contract) { c.Commands[0].Parameters[1].Schemas[0].FreeText = false },
		"nil-or-empty":       func(c *argv.Contract) { c.Commands[1].Parameters = []argv.Parameter{} },
	} {
		t.Run(label, func(t *testing.T) {
			c := goldenContract(t)
			change(&c)
			require.Equal(t, want, canonical(t, c.Semantics()))
		})
	}
}

// TestSemanticsNotices whatever changes what a caller may say or what starts.
func TestSemanticsNotices(t *testing.T) {
	p := func(c *argv.Contract, i int) *argv.Parameter { return &c.Commands[0].Parameters[i] }
	seen := map[string]string{canonical(t, goldenContract(t).Semantics()): "nothing"}
	for label, change := range map[string]func(c *argv.Contract){
		"command":         func(c *argv.Contract) { c.Command = "hg" },
		"fixed":           func(c *argv.Contract) { c.Arguments = nil },
		"environment":     func(c *argv.Contract) { c.Environment = c.Environment[1:] },
		"timeout":         func(c *argv.Contract) { c.Timeout++; c.Timeout += time.Millisecond },
		"name":            func(c *argv.Contract) { c.Commands[0].Name = mustCommand(t, "other") },
		"effect":          func(c *argv.Contract) { c.Commands[0].Effect = "" },
		"arguments-order": func(c *argv.Contract) { c.Commands[0].Arguments = []string{"list", "issue"} },
		"arguments-join":  func(c *argv.Contract) { c.Commands[0].Arguments = []string{"issue list"} },
		"end-of-options":  func(c *argv.Contract) { c.Commands[0].EndOfOptions = false },
		"command-timeout": func(c *argv.Contract) { c.Commands[0].Timeout = 0 },
		"no-rest":         func(c *argv.Contract) { c.Commands[0].Rest = nil },
		"rest-items":      func(c *argv.Contract) { c.Commands[0].Rest.MaxItems++ },
		"rest-pattern":    func(c *argv.Contract) { c.Commands[0].Rest.Pattern = "." },
		"no-parameter":    func(c *argv.Contract) { c.Commands[0].Parameters = c.Commands[0].Parameters[1:] },
		"required":        func(c *argv.Contract) { p(c, 4).Required = false },
		"secret":          func(c *argv.Contract) { p(c, 2).Secret = false },
		"flag":            func(c *argv.Contract) { p(c, 4).Flag.Name = "--repos" },
		"alias":           func(c *argv.Contract) { p(c, 4).Flag.Aliases = nil },
		"render":          func(c *argv.Contract) { p(c, 4).Flag.Render = argv.RenderSpace },
		"repeat":          func(c *argv.Contract) { p(c, 5).Flag.Repeat = false },
		"separator":       func(c *argv.Contract) { p(c, 1).Flag.Separator = ";" },
		"min-items":       func(c *argv.Contract) { p(c, 5).List.MinItems = 0 },
		"max-items":       func(c *argv.Contract) { p(c, 5).List.MaxItems++ },
		"stdin-bytes":     func(c *argv.Contract) { p(c, 0).Stdin.MaxBytes = 5 },
		"stdin-text":      func(c *argv.Contract) { p(c, 0).Stdin.Text = false },
		"variable":        func(c *argv.Contract) { p(c, 2).Variable = "ACME_B" },
		"position":        func(c *argv.Contract) { p(c, 6).Position = 2 },
		"type":            func(c *argv.Contract) { p(c, 3).Schemas[0].Type = argv.TypeInteger },
		"enum":            func(c *argv.Contract) { p(c, 4).Schemas[0].Enum = []string{"a/a"} },
		"enum-empty":      func(c *argv.Contract) { p(c, 4).Schemas[0].Enum = []string{} },
		"enum-absent":     func(c *argv.Contract) { p(c, 4).Schemas[0].Enum = nil },
		"const":           func(c *argv.Contract) { p(c, 2).Schemas[0].Const = ptr("") },
		"const-absent":    func(c *argv.Contract) { p(c, 2).Schemas[0].Const = nil },
		"pattern":         func(c *argv.Contract) { p(c, 5).Schemas[0].Pattern = "" },
		"min-length":      func(c *argv.Contract) { p(c, 5).Schemas[0].MinLength = ptr(0) },
		"no-min-length":   func(c *argv.Contract) { p(c, 5).Schemas[0].MinLength = nil },
		"max-length":      func(c *argv.Contract) { p(c, 5).Schemas[0].MaxLength = nil },
		"minimum":         func(c *argv.Contract) { p(c, 3).Schemas[0].Minimum = nil },
		"maximum":         func(c *argv.Contract) { p(c, 3).Schemas[0].Maximum = ptr(1.5) },
		"kind":            func(c *argv.Contract) { p(c, 6).Schemas[0].Kind = "" },
		"narrowed":        func(c *argv.Contract) { p(c, 6).Schemas = append(p(c, 6).Schemas, argv.Schema{Type: argv.TypeString}) },
	} {
		t.Run(label, func(t *testing.T) {
			c := goldenContract(t)
			change(&c)
			got := canonical(t, c.Semantics())
			require.Empty(t, seen[got], "it is the same as %s", seen[got])
			seen[got] = label
		})
	}
}

func TestCanonicalJSON(t *testing.T) {
	for label, c := range map[string]struct {
		value any
		want  string
	}{
		"nil":         {nil, `null`},
		"map-order":   {map[string]any{"b": 1, "a": []any{true, nil, "x"}, "\U0001f600": 0, "\ufb33": 0}, "{\"a\":[true,null,\"x\"],\"b\":1,\"😀\":0,\"\ufb33\":0}"},
		"integers":    {[]int64{0, -1, 1 << 53, -(1 << 53)}, `[0,-1,9007199254740992,-9007199254740992]`},
		"floats":      {[]float64{0.1, 1e21, 1e-7, 100, math.Copysign(0, -1), 4.5e-10}, `[0.1,1e+21,1e-7,100,0,4.5e-10]`},
		"text":        {"<>&\u2028é\x00\"\\/", "\"<>&\u2028é\\u0000\\\"\\\\/\""},
		"replacement": {"\ufffd", "\"\ufffd\""},
		"struct":      {argv.Stdin{MaxBytes: 5, Text: true}, `{"max_bytes":5,"text":true}`},
		"text-type":   {mustCommand(t, "issue.list"), `"issue.list"`},
	} {
		t.Run(label, func(t *testing.T) {
			require.Equal(t, c.want, canonical(t, c.value))
		})
	}
	for label, v := range map[string]any{
		"nan": math.NaN(), "infinity": []any{math.Inf(-1)}, "integer-in-between": int64(1<<53 + 1), "unsigned": uint64(math.MaxUint64),
		"not-utf-8": "a\xff", "not-utf-8-key": map[string]any{"\xc3": 1}, "function": func() {}, "channel": make(chan int),
	} {
		t.Run(label, func(t *testing.T) {
			data, err := argv.CanonicalJSON(v)
			require.Error(t, err)
			require.Nil(t, data)
		})
	}
}
