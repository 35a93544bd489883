package argv_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/protocol/argv"
	"github.com/lendcli/lend/protocol/name"
)

func ptr[T any](v T) *T { return &v }

// declare reads a declaration that is right as far as it goes.
func declare(tb testing.TB, doc string) argv.Command {
	tb.Helper()
	var d argv.Declaration
	require.NoError(tb, yaml.UnmarshalWithOptions([]byte(doc), &d, yaml.Strict()), doc)
	c, err := d.Command(mustCommand(tb, "test"))
	require.NoError(tb, err, doc)
	return c
}

func compile(tb testing.TB, doc string) *argv.Grammar {
	tb.Helper()
	g, err := declare(tb, doc).Compile(argv.Contract{Command: "tool", Environment: []string{"ACME_A", "ACME_B"}})
	require.NoError(tb, err, doc)
	return g
}

// faultsOf returns the joined declaration errors as "path: message".
func faultsOf(tb testing.TB, err error) []*argv.DeclarationError {
	tb.Helper()
	var joined interface{ Unwrap() []error }
	require.ErrorAs(tb, err, &joined)
	out := make([]*argv.DeclarationError, 0, len(joined.Unwrap()))
	for _, e := range joined.Unwrap() {
		var one *argv.DeclarationError
		require.ErrorAs(tb, e, &one, "%T: %v", e, e)
		requireSafe(tb, one.Error(), "")
		out = append(out, one)
	}
	return out
}

func TestDeclarationWhole(t *testing.T) {
	doc := `{"summary": "Do it", "effect": "read", "arguments": ["do", "--now"], "timeout": "90s", "end_of_options": true,
	  "rest": {"max_items": 3, "pattern": "[a-z]+"},
	  "parameters": {
	    "zone": {"position": 1, "required": true, "const": "eu"},
	    "count": {"flag": "-n", "aliases": ["--count"], "type": "integer", "enum": [1, 2, -3], "minimum": 1},
	    "tags": {"flag": "--tag", "repeat": 4, "min_items": 1, "pattern": "[a-z]", "min_length": 1, "max_length": 9, "description": "tags"},
	    "cols": {"flag": "--cols", "render": "space", "separator": ",", "max_items": 5, "enum": ["a", "b"]},
	    "body": {"stdin": {"max_bytes": 10, "text": true}, "required": true},
	    "key": {"env": "ACME_A", "secret": true, "free_text": true},
	    "dry": {"flag": "--dry", "type": "boolean", "const": true},
	    "rate": {"flag": "--rate", "type": "number", "const": 0.5}}}`
	var fromJSON, fromYAML argv.Declaration
	require.NoError(t, json.Unmarshal([]byte(doc), &fromJSON))
	require.NoError(t, yaml.UnmarshalWithOptions([]byte(doc), &fromYAML, yaml.Strict()))
	c, err := fromJSON.Command(mustCommand(t, "do.it"))
	require.NoError(t, err)
	same, err := fromYAML.Command(mustCommand(t, "do.it"))
	require.NoError(t, err)
	require.Equal(t, c, same, "both files mean the same")

	p := func(s string) name.Parameter { return mustParameter(t, s) }
	require.Equal(t, argv.Command{
		Name: mustCommand(t, "do.it"), Description: "Do it", Effect: argv.EffectRead, Arguments: []string{"do", "--now"},
		Timeout: 90 * time.Second, EndOfOptions: true, Rest: &argv.Rest{MaxItems: 3, Pattern: "[a-z]+"},
		Parameters: []argv.Parameter{
			{Name: p("body"), Required: true, Schemas: []argv.Schema{{Type: argv.TypeString}}, Stdin: &argv.Stdin{MaxBytes: 10, Text: true}},
			{
				Name: p("cols"), List: &argv.List{MaxItems: 5}, Schemas: []argv.Schema{{Type: argv.TypeString, Enum: []string{"a", "b"}}},
				Flag: &argv.Flag{Name: "--cols", Render: argv.RenderSpace, Separator: ","},
			},
			{
				Name: p("count"), Schemas: []argv.Schema{{Type: argv.TypeInteger, Enum: []string{"1", "2", "-3"}, Minimum: ptr(1.0)}},
				Flag: &argv.Flag{Name: "-n", Aliases: []string{"--count"}},
			},
			{Name: p("dry"), Schemas: []argv.Schema{{Type: argv.TypeBoolean, Const: ptr("true")}}, Flag: &argv.Flag{Name: "--dry"}},
			{Name: p("key"), Secret: true, Schemas: []argv.Schema{{Type: argv.TypeString, FreeText: true}}, Variable: "ACME_A"},
			{Name: p("rate"), Schemas: []argv.Schema{{Type: argv.TypeNumber, Const: ptr("0.5")}}, Flag: &argv.Flag{Name: "--rate"}},
			{
				Name: p("tags"), Description: "tags", List: &argv.List{MinItems: 1, MaxItems: 4},
				Schemas: []argv.Schema{{Type: argv.TypeString, Pattern: "[a-z]", MinLength: ptr(1), MaxLength: ptr(9)}},
				Flag:    &argv.Flag{Name: "--tag", Repeat: true},
			},
			{Name: p("zone"), Required: true, Schemas: []argv.Schema{{Type: argv.TypeString, Const: ptr("eu")}}, Position: 1},
		},
	}, c)
}

func TestDeclarationIsStrictJSON(t *testing.T) {
	for label, doc := range map[string]string{
		"unknown-key":           `{"argument": ["a"]}`,
		"unknown-parameter-key": `{"parameters": {"a": {"flags": "--a"}}}`,
		"unknown-stdin-key":     `{"parameters": {"a": {"stdin": {"max": 1}}}}`,
		"another-case":          `{"Arguments": ["a"]}`,
		"duplicate-key":         `{"arguments": ["a"], "arguments": ["b"]}`,
		"duplicate-parameter":   `{"parameters": {"a": {}, "a": {}}}`,
		"another-type":          `{"arguments": "a"}`,
		"not-an-object":         `[]`,
	} {
		t.Run(label, func(t *testing.T) {
			var d argv.Declaration
			err := json.Unmarshal([]byte(doc), &d)
			require.Error(t, err)
			require.Zero(t, d)
			requireSafe(t, err.Error(), label)
		})
	}
}

func TestDeclarationFaults(t *testing.T) {
	long := strings.Repeat("a", 2000)
	for label, c := range map[string]struct {
		doc  string
		path string
	}{
		"timeout-word":              {`{timeout: soon}`, "timeout"},
		"timeout-zero":              {`{timeout: 0s}`, "timeout"},
		"timeout-negative":          {`{timeout: -1s}`, "timeout"},
		"timeout-long":              {`{timeout: 25h}`, "timeout"},
		"timeout-fine":              {`{timeout: 1ns}`, "timeout"},
		"effect":                    {`{effect: none}`, "effect"},
		"summary-lines":             {`{summary: "a\nb"}`, "summary"},
		"summary-long":              {`{summary: ` + long + `}`, "summary"},
		"argument-empty":            {`{arguments: [a, ""]}`, "arguments[1]"},
		"argument-control":          {`{arguments: ["a\0b"]}`, "arguments[0]"},
		"arguments-many":            {`{arguments: [` + strings.Repeat("a,", 65) + `]}`, "arguments"},
		"parameter-name":            {`{parameters: {Repo: {flag: --repo, free_text: true}}}`, "parameters"},
		"no-place":                  {`{parameters: {a: {free_text: true}}}`, "parameters.a"},
		"two-places":                {`{parameters: {a: {flag: --a, position: 1, free_text: true}}}`, "parameters.a"},
		"flag-name":                 {`{parameters: {a: {flag: repo, free_text: true}}}`, "parameters.a.flag"},
		"flag-dashes":               {`{parameters: {a: {flag: ---a, free_text: true}}}`, "parameters.a.flag"},
		"flag-alone":                {`{parameters: {a: {flag: --, free_text: true}}}`, "parameters.a.flag"},
		"flag-equals":               {`{parameters: {a: {flag: --a=b, free_text: true}}}`, "parameters.a.flag"},
		"flag-space":                {`{parameters: {a: {flag: "--a b", free_text: true}}}`, "parameters.a.flag"},
		"alias-name":                {`{parameters: {a: {flag: --a, aliases: [-b, c], free_text: true}}}`, "parameters.a.aliases[1]"},
		"aliases-many":              {`{parameters: {a: {flag: --a, aliases: [-b, -c, -d, -e, -f, -g, -h, -i, -j], free_text: true}}}`, "parameters.a.aliases"},
		"alias-without-flag":        {`{parameters: {a: {position: 1, aliases: [-b], free_text: true}}}`, "parameters.a"},
		"repeat-without-flag":       {`{parameters: {a: {position: 1, repeat: 2, free_text: true}}}`, "parameters.a"},
		"render-word":               {`{parameters: {a: {flag: --a, render: both, free_text: true}}}`, "parameters.a.render"},
		"render-short-equals":       {`{parameters: {a: {flag: -a, render: equals, free_text: true}}}`, "parameters.a.render"},
		"flag-twice":                {`{parameters: {a: {flag: --x, free_text: true}, b: {flag: --x, free_text: true}}}`, "parameters.b"},
		"alias-is-a-flag":           {`{parameters: {a: {flag: --x, free_text: true}, b: {flag: --y, aliases: [--x], free_text: true}}}`, "parameters.b"},
		"variable-name-is-a-flag":   {`{parameters: {a: {flag: --b, free_text: true}, b: {env: ACME_A, free_text: true}}}`, "parameters.b"},
		"variable-twice":            {`{parameters: {a: {env: ACME_A, free_text: true}, b: {env: ACME_A, free_text: true}}}`, "parameters.b.env"},
		"variable-steers":           {`{parameters: {a: {env: LD_PRELOAD, free_text: true}}}`, "parameters.a.env"},
		"variable-list":             {`{parameters: {a: {env: ACME_A, max_items: 2, free_text: true}}}`, "parameters.a"},
		"variable-path":             {`{parameters: {a: {env: ACME_A, kind: path}}}`, "parameters.a.kind"},
		"stdin-twice":               {`{parameters: {a: {stdin: {}}, b: {stdin: {}}}}`, "parameters.b.stdin"},
		"stdin-schema":              {`{parameters: {a: {stdin: {}, pattern: a}}}`, "parameters.a"},
		"stdin-length":              {`{parameters: {a: {stdin: {}, max_length: 5}}}`, "parameters.a"},
		"stdin-size":                {`{parameters: {a: {stdin: {max_bytes: -1}}}}`, "parameters.a.stdin.max_bytes"},
		"secret-flag":               {`{parameters: {a: {flag: --a, secret: true, free_text: true}}}`, "parameters.a.secret"},
		"secret-position":           {`{parameters: {a: {position: 1, secret: true, free_text: true}}}`, "parameters.a.secret"},
		"position-negative":         {`{parameters: {a: {position: -1, free_text: true}}}`, "parameters.a.position"},
		"position-gap":              {`{parameters: {a: {position: 2, free_text: true}}}`, "parameters.a.position"},
		"position-twice":            {`{parameters: {a: {position: 1, free_text: true}, b: {position: 1, free_text: true}}}`, "parameters.b.position"},
		"position-optional-first":   {`{parameters: {a: {position: 1, free_text: true}, b: {position: 2, required: true, free_text: true}}}`, "parameters.b"},
		"position-list-not-last":    {`{parameters: {a: {position: 1, required: true, max_items: 2, free_text: true}, b: {position: 2, free_text: true}}}`, "parameters.a"},
		"rest-without-arguments":    {`{rest: {max_items: 1, pattern: a}}`, "rest"},
		"rest-after-options-only":   {`{arguments: [-q, --no-pager], rest: {max_items: 1, pattern: a}}`, "rest"},
		"rest-without-pattern":      {`{arguments: [x], rest: {max_items: 1}}`, "rest.pattern"},
		"rest-bad-pattern":          {`{arguments: [x], rest: {max_items: 1, pattern: "("}}`, "rest.pattern"},
		"rest-without-items":        {`{arguments: [x], rest: {pattern: a}}`, "rest.max_items"},
		"rest-many-items":           {`{arguments: [x], rest: {max_items: 257, pattern: a}}`, "rest.max_items"},
		"rest-after-optional":       {`{arguments: [x], rest: {max_items: 1, pattern: a}, parameters: {a: {position: 1, free_text: true}}}`, "parameters.a"},
		"rest-after-list":           {`{arguments: [x], rest: {max_items: 1, pattern: a}, parameters: {a: {position: 1, required: true, max_items: 2, free_text: true}}}`, "parameters.a"},
		"rest-twice":                {`{arguments: [x], rest: {max_items: 1, pattern: a}, parameters: {rest: {flag: --rest, free_text: true}}}`, "rest"},
		"type":                      {`{parameters: {a: {flag: --a, type: object}}}`, "parameters.a.type"},
		"kind":                      {`{parameters: {a: {flag: --a, kind: url}}}`, "parameters.a.kind"},
		"kind-on-integer":           {`{parameters: {a: {flag: --a, type: integer, kind: path}}}`, "parameters.a.kind"},
		"pattern-on-integer":        {`{parameters: {a: {flag: --a, type: integer, pattern: a}}}`, "parameters.a.pattern"},
		"pattern-broken":            {`{parameters: {a: {flag: --a, pattern: "a)|(b"}}}`, "parameters.a.pattern"},
		"pattern-quote-left-open":   {`{parameters: {a: {flag: --a, pattern: "\\Qa"}}}`, "parameters.a.pattern"},
		"pattern-backreference":     {`{parameters: {a: {flag: --a, pattern: "(a)\\1"}}}`, "parameters.a.pattern"},
		"pattern-repeat":            {`{parameters: {a: {flag: --a, pattern: "a{1001}"}}}`, "parameters.a.pattern"},
		"pattern-long":              {`{parameters: {a: {flag: --a, pattern: ` + long + `}}}`, "parameters.a.pattern"},
		"length-on-integer":         {`{parameters: {a: {flag: --a, type: integer, max_length: 1}}}`, "parameters.a"},
		"length-negative":           {`{parameters: {a: {flag: --a, free_text: true, min_length: -1}}}`, "parameters.a.min_length"},
		"length-reversed":           {`{parameters: {a: {flag: --a, free_text: true, min_length: 2, max_length: 1}}}`, "parameters.a.min_length"},
		"range-on-string":           {`{parameters: {a: {flag: --a, free_text: true, minimum: 1}}}`, "parameters.a"},
		"range-reversed":            {`{parameters: {a: {flag: --a, type: integer, minimum: 2, maximum: 1}}}`, "parameters.a.minimum"},
		"range-huge":                {`{parameters: {a: {flag: --a, type: integer, maximum: 1e300}}}`, "parameters.a.maximum"},
		"free-text-on-boolean":      {`{parameters: {a: {flag: --a, type: boolean, free_text: true}}}`, "parameters.a.free_text"},
		"enum-empty":                {`{parameters: {a: {flag: --a, enum: []}}}`, "parameters.a.enum"},
		"enum-number-for-string":    {`{parameters: {a: {flag: --a, enum: [b, 2.40]}}}`, "parameters.a.enum[1]"},
		"enum-string-for-integer":   {`{parameters: {a: {flag: --a, type: integer, enum: ["1"]}}}`, "parameters.a.enum[0]"},
		"enum-fraction-for-integer": {`{parameters: {a: {flag: --a, type: integer, enum: [1.5]}}}`, "parameters.a.enum[0]"},
		"enum-huge-integer":         {`{parameters: {a: {flag: --a, type: integer, enum: [9007199254740993]}}}`, "parameters.a.enum[0]"},
		"enum-twice":                {`{parameters: {a: {flag: --a, enum: [b, c, b]}}}`, "parameters.a.enum[2]"},
		"enum-control":              {`{parameters: {a: {flag: --a, enum: ["b\n"]}}}`, "parameters.a.enum[0]"},
		"enum-null":                 {`{parameters: {a: {flag: --a, enum: [null]}}}`, "parameters.a.enum[0]"},
		"enum-list":                 {`{parameters: {a: {flag: --a, enum: [[b]]}}}`, "parameters.a.enum[0]"},
		"enum-long":                 {`{parameters: {a: {flag: --a, enum: [` + long + `]}}}`, "parameters.a.enum[0]"},
		"enum-option-with-space":    {`{parameters: {a: {flag: --a, render: space, enum: [-x]}}}`, "parameters.a"},
		"enum-option-at-position":   {`{parameters: {a: {position: 1, enum: [-x]}}}`, "parameters.a"},
		"const-option-at-position":  {`{parameters: {a: {position: 1, const: --}}}`, "parameters.a"},
		"enum-path":                 {`{parameters: {a: {flag: --a, kind: path, enum: [../x]}}}`, "parameters.a.enum[0]"},
		"enum-path-dash":            {`{parameters: {a: {flag: --a, kind: path, enum: [x, "-"]}}}`, "parameters.a.enum[1]"},
		"const-type":                {`{parameters: {a: {flag: --a, type: boolean, const: "true"}}}`, "parameters.a.const"},
		"separator-word":            {`{parameters: {a: {flag: --a, separator: "::", max_items: 2, enum: [b]}}}`, "parameters.a.separator"},
		"separator-letter":          {`{parameters: {a: {flag: --a, separator: "x", max_items: 2, enum: [b]}}}`, "parameters.a.separator"},
		"separator-without-items":   {`{parameters: {a: {flag: --a, separator: ",", enum: [b]}}}`, "parameters.a"},
		"separator-and-repeat":      {`{parameters: {a: {flag: --a, separator: ",", repeat: 2, enum: [b]}}}`, "parameters.a.separator"},
		"separator-in-enum":         {`{parameters: {a: {flag: --a, separator: ",", max_items: 2, enum: ["b,c"]}}}`, "parameters.a"},
		"separator-numbers-space":   {`{parameters: {a: {flag: --a, render: space, separator: ",", max_items: 2, type: integer}}}`, "parameters.a.render"},
		"repeat-and-items":          {`{parameters: {a: {flag: --a, repeat: 2, max_items: 2, enum: [b]}}}`, "parameters.a.max_items"},
		"repeat-negative":           {`{parameters: {a: {flag: --a, repeat: -1, enum: [b]}}}`, "parameters.a.max_items"},
		"items-without-list":        {`{parameters: {a: {flag: --a, min_items: 1, enum: [b]}}}`, "parameters.a.min_items"},
		"items-of-a-plain-flag":     {`{parameters: {a: {flag: --a, max_items: 2, enum: [b]}}}`, "parameters.a"},
		"items-many":                {`{parameters: {a: {flag: --a, repeat: 257, enum: [b]}}}`, "parameters.a.max_items"},
		"items-reversed":            {`{parameters: {a: {flag: --a, repeat: 2, min_items: 3, enum: [b]}}}`, "parameters.a.min_items"},
		"boolean-list":              {`{parameters: {a: {flag: --a, repeat: 2, type: boolean}}}`, "parameters.a.type"},
	} {
		t.Run(label, func(t *testing.T) {
			var d argv.Declaration
			require.NoError(t, yaml.UnmarshalWithOptions([]byte(c.doc), &d, yaml.Strict()))
			command, err := d.Command(mustCommand(t, "test"))
			require.Error(t, err)
			require.Zero(t, command)
			faults := faultsOf(t, err)
			require.Len(t, faults, 1, "%v", err)
			require.Equal(t, c.path, faults[0].Path, "%v", err)
			require.False(t, faults[0].Bare)
		})
	}
}

func TestDeclarationReportsAll(t *testing.T) {
	var d argv.Declaration
	require.NoError(t, yaml.Unmarshal([]byte(`{effect: x, arguments: [""], parameters: {a: {flag: a, free_text: true}, b: {position: 1}}}`), &d))
	_, err := d.Command(mustCommand(t, "test"))
	var paths []string
	for _, f := range faultsOf(t, err) {
		paths = append(paths, f.Path)
		require.Equal(t, f.Path == "parameters.b", f.Bare, f)
	}
	require.Equal(t, []string{"effect", "arguments[0]", "parameters.a.flag", "parameters.b"}, paths)
}

func TestBareStrings(t *testing.T) {
	for label, keys := range map[string]string{
		"nothing":       "",
		"lengths-alone": ", min_length: 1, max_length: 5",
	} {
		t.Run(label, func(t *testing.T) {
			var d argv.Declaration
			require.NoError(t, yaml.Unmarshal([]byte("{parameters: {a: {flag: --a"+keys+"}}}"), &d))
			_, err := d.Command(mustCommand(t, "test"))
			faults := faultsOf(t, err)
			require.Len(t, faults, 1)
			require.True(t, faults[0].Bare)
		})
	}
	for label, keys := range map[string]string{
		"enum": "enum: [a]", "const": "const: a", "pattern": "pattern: a", "path": "kind: path", "free-text": "free_text: true",
		"integer": "type: integer", "number": "type: number", "boolean": "type: boolean",
	} {
		t.Run(label, func(t *testing.T) { declare(t, "{parameters: {a: {flag: --a, "+keys+"}}}") })
	}
	declare(t, "{parameters: {a: {stdin: {}}}}")
}

func TestParameterNarrowing(t *testing.T) {
	c := declare(t, `{parameters: {n: {flag: -n, type: integer}, s: {flag: -s, free_text: true}, in: {stdin: {}}}}`)
	base := map[string]argv.Parameter{}
	for _, q := range c.Parameters {
		base[q.Name.String()] = q
	}
	read := func(doc string) (d argv.ParameterDeclaration) {
		require.NoError(t, yaml.UnmarshalWithOptions([]byte(doc), &d, yaml.Strict()))
		return d
	}
	n, err := read(`{enum: [1, 2], required: true}`).Narrowing(base["n"])
	require.NoError(t, err)
	require.Equal(t, argv.Narrowing{Required: true, Schema: &argv.Schema{Type: argv.TypeInteger, Enum: []string{"1", "2"}}}, n)
	n, err = read(`{required: true}`).Narrowing(base["s"])
	require.NoError(t, err)
	require.Equal(t, argv.Narrowing{Required: true}, n)

	for label, doc := range map[string]string{
		"place": `{flag: -x, enum: [1]}`, "secret": `{secret: true}`, "items": `{max_items: 2}`, "description": `{description: x}`,
		"wrong-scalar": `{enum: [a]}`, "empty-enum": `{enum: []}`, "reversed": `{minimum: 2, maximum: 1}`, "length": `{max_length: 1}`,
	} {
		t.Run(label, func(t *testing.T) {
			n, err := read(doc).Narrowing(base["n"])
			require.NotEmpty(t, faultsOf(t, err))
			require.Zero(t, n)
		})
	}
}
