package argv_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/protocol/argv"
	"github.com/lendcli/lend/protocol/name"
)

func values(tb testing.TB, pairs ...any) []argv.Value {
	tb.Helper()
	var out []argv.Value
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, argv.Value{Parameter: mustParameter(tb, pairs[i].(string)), Items: pairs[i+1].([]string)})
	}
	return out
}

func TestParseWholeCall(t *testing.T) {
	c := declare(t, `{arguments: [send, --now], end_of_options: true, parameters: {
	  to: {position: 1, required: true, kind: path},
	  also: {position: 2, kind: path, max_items: 3},
	  from: {flag: --from, kind: path},
	  near: {flag: -n, kind: path, repeat: 2},
	  all: {flag: --all, kind: path, separator: ":", max_items: 3},
	  level: {flag: --level, type: integer},
	  token: {env: ACME_B, secret: true, free_text: true},
	  body: {stdin: {}, required: true},
	  zone: {env: ACME_A, enum: [eu, us]}}}`)
	g, err := c.Compile(argv.Contract{Command: "tool", Arguments: []string{"--quiet"}, Environment: []string{"ACME_A", "ACME_B"}})
	require.NoError(t, err)
	call, err := g.Parse([]string{
		"a/b", "--zone", "eu", "-n", "x", "--level=-3", "--from", "c", "--token=t0ken", "-n", "y/z", "--all=k:l/m", "--", "d", "e",
	})
	require.NoError(t, err)
	require.Equal(t, argv.Call{
		Arguments:   []string{"--quiet", "send", "--now", "--all=k:l/m", "--from=c", "--level=-3", "-n", "x", "-n", "y/z", "--", "a/b", "d", "e"},
		Environment: []argv.Variable{{Name: "ACME_A", Value: "eu"}, {Name: "ACME_B", Value: "t0ken"}},
		Stdin:       &argv.Stdin{MaxBytes: 1 << 20},
		Values: values(t, "all", []string{"k", "l/m"}, "from", []string{"c"}, "level", []string{"-3"}, "near", []string{"x", "y/z"},
			"to", []string{"a/b"}, "also", []string{"d", "e"}, "token", []string{"t0ken"}, "zone", []string{"eu"}),
		Paths: []argv.Path{
			{Index: 3, Offset: 6, Path: "k"},
			{Index: 3, Offset: 8, Path: "l/m"},
			{Index: 4, Offset: 7, Path: "c"},
			{Index: 7, Offset: 0, Path: "x"},
			{Index: 9, Offset: 0, Path: "y/z"},
			{Index: 11, Offset: 0, Path: "a/b"},
			{Index: 12, Offset: 0, Path: "d"},
			{Index: 13, Offset: 0, Path: "e"},
		},
	}, call)
}

// TestCallsAreSeparate: a caller of Parse may change what it got.
func TestCallsAreSeparate(t *testing.T) {
	g := compile(t, `{arguments: [do], rest: {max_items: 2, pattern: "[a-z]"}, parameters: {a: {flag: --a, repeat: 2, enum: [b, c]}, in: {stdin: {}}}}`)
	first, err := g.Parse([]string{"--a=b", "x"})
	require.NoError(t, err)
	second, err := g.Parse([]string{"--a=b", "x"})
	require.NoError(t, err)
	first.Arguments[0], first.Values[0].Items[0], first.Values[1].Items[0] = "changed", "changed", "changed"
	first.Stdin.MaxBytes = 1
	_ = append(first.Arguments[:1], "changed")
	third, err := g.Parse([]string{"--a=b", "x"})
	require.NoError(t, err)
	require.Equal(t, second, third)
}

func TestParse(t *testing.T) {
	for label, c := range map[string]struct {
		doc  string
		args []string
		want []string // nil: refused
		kind argv.Fault
	}{
		"nothing":                   {`{}`, nil, []string{}, ""},
		"end-of-options-alone":      {`{}`, []string{"--"}, []string{}, ""},
		"end-of-options-twice":      {`{}`, []string{"--", "--"}, nil, argv.FaultExtra},
		"dashes-without-position":   {`{end_of_options: true, parameters: {a: {flag: --a, enum: [b]}}}`, []string{"--a=b"}, []string{"--a=b"}, ""},
		"dashes-before-position":    {`{end_of_options: true, parameters: {a: {position: 1, enum: [b]}}}`, []string{"b"}, []string{"--", "b"}, ""},
		"dashes-before-rest":        {`{arguments: [x], end_of_options: true, rest: {max_items: 2, pattern: a}}`, []string{"a", "a"}, []string{"x", "--", "a", "a"}, ""},
		"rest-empty":                {`{arguments: [x], rest: {max_items: 2, pattern: a}}`, nil, []string{"x"}, ""},
		"rest-is-a-full-match":      {`{arguments: [x], rest: {max_items: 2, pattern: a}}`, []string{"ab"}, nil, argv.FaultValue},
		"rest-is-not-unanchored":    {`{arguments: [x], rest: {max_items: 2, pattern: "a|b"}}`, []string{"ax"}, nil, argv.FaultValue},
		"rest-option":               {`{arguments: [x], rest: {max_items: 2, pattern: ".*"}}`, []string{"--", "-a"}, nil, argv.FaultOption},
		"rest-negative-number":      {`{arguments: [x], rest: {max_items: 2, pattern: ".*"}}`, []string{"--", "-5"}, nil, argv.FaultOption},
		"rest-file":                 {`{arguments: [x], rest: {max_items: 2, pattern: ".*"}}`, []string{"a=@b"}, nil, argv.FaultFile},
		"rest-empty-string":         {`{arguments: [x], rest: {max_items: 2, pattern: ".*"}}`, []string{""}, nil, argv.FaultEmpty},
		"rest-dash":                 {`{arguments: [x], rest: {max_items: 2, pattern: ".*"}}`, []string{"-"}, nil, argv.FaultDash},
		"pattern-newline-at-end":    {`{parameters: {a: {flag: --a, pattern: "a$"}}}`, []string{"--a=a\n"}, nil, argv.FaultControl},
		"pattern-multi-line":        {`{parameters: {a: {flag: --a, pattern: "(?m)^a$"}}}`, []string{"--a=a"}, []string{"--a=a"}, ""},
		"pattern-alternatives":      {`{parameters: {a: {flag: --a, pattern: "a|ab"}}}`, []string{"--a=ab"}, []string{"--a=ab"}, ""},
		"pattern-part":              {`{parameters: {a: {flag: --a, pattern: "a|ab"}}}`, []string{"--a=abc"}, nil, argv.FaultValue},
		"empty-by-length":           {`{parameters: {a: {flag: --a, free_text: true, min_length: 0}}}`, []string{"--a="}, []string{"--a="}, ""},
		"false-is-a-word-too":       {`{parameters: {a: {flag: -a, free_text: true}}}`, []string{"-a", "false"}, []string{"-a", "false"}, ""},
		"empty-by-length-space":     {`{parameters: {a: {flag: -a, free_text: true, min_length: 0}}}`, []string{"-a", ""}, []string{"-a", ""}, ""},
		"empty-by-enum":             {`{parameters: {a: {position: 1, enum: ["", b]}}}`, []string{""}, []string{""}, ""},
		"empty-by-pattern-only":     {`{parameters: {a: {position: 1, pattern: "a*"}}}`, []string{""}, nil, argv.FaultEmpty},
		"empty-integer":             {`{parameters: {a: {position: 1, type: integer}}}`, []string{""}, nil, argv.FaultNumber},
		"dash-by-const":             {`{parameters: {a: {position: 1, const: "-"}}}`, []string{"-"}, []string{"-"}, ""},
		"dash-by-pattern-only":      {`{parameters: {a: {position: 1, pattern: ".*"}}}`, []string{"-"}, nil, argv.FaultDash},
		"option-by-enum-equals":     {`{parameters: {a: {flag: --sort, enum: [-created, created]}}}`, []string{"--sort", "-created"}, []string{"--sort=-created"}, ""},
		"option-by-enum-after-end":  {`{end_of_options: true, parameters: {a: {position: 1, enum: [-x]}}}`, []string{"--", "-x"}, []string{"--", "-x"}, ""},
		"option-by-enum-before-end": {`{end_of_options: true, parameters: {a: {position: 1, enum: [-x]}}}`, []string{"-x"}, nil, argv.FaultFlag},
		"file-by-enum":              {`{parameters: {a: {flag: --a, enum: ["@me", "file:///x"]}}}`, []string{"--a=file:///x"}, []string{"--a=file:///x"}, ""},
		"file-by-enum-another":      {`{parameters: {a: {flag: --a, enum: ["@me"]}}}`, []string{"--a=@you"}, nil, argv.FaultFile},
		"file-with-query":           {`{parameters: {a: {flag: --a, free_text: true}}}`, []string{"--a=x=y=@z"}, nil, argv.FaultFile},
		"file-after-any-key":        {`{parameters: {a: {flag: --a, free_text: true}}}`, []string{`--a=a/b=@z`}, nil, argv.FaultFile},
		"file-after-a-colon-key":    {`{parameters: {a: {flag: --a, free_text: true}}}`, []string{`--a=data:=@z`}, nil, argv.FaultFile},
		"file-after-words":          {`{parameters: {a: {flag: --a, free_text: true}}}`, []string{`--a=some key= @z`}, nil, argv.FaultFile},
		"file-scheme-after-any-key": {`{parameters: {a: {flag: --a, free_text: true}}}`, []string{`--a=a/b=file:///z`}, nil, argv.FaultFile},
		"file-scheme-relative":      {`{parameters: {a: {flag: --a, free_text: true}}}`, []string{`--a=file:../z`}, nil, argv.FaultFile},
		"file-scheme-home":          {`{parameters: {a: {flag: --a, free_text: true}}}`, []string{`--a=FILE:~/z`}, nil, argv.FaultFile},
		"file-scheme-windows":       {`{parameters: {a: {flag: --a, free_text: true}}}`, []string{`--a=file:\\z`}, nil, argv.FaultFile},
		"file-word-in-a-sentence":   {`{parameters: {a: {flag: --a, free_text: true}}}`, []string{"--a=file: see 1=2, a b=@c"}, []string{"--a=file: see 1=2, a b=@c"}, ""},
		"file-by-joined-items":      {`{parameters: {a: {flag: --a, free_text: true, separator: ":", max_items: 3}}}`, []string{"--a=file:/etc/passwd"}, nil, argv.FaultFile},
		"file-by-joined-slash":      {`{parameters: {a: {flag: --a, free_text: true, separator: "/", max_items: 3}}}`, []string{"--a=k=file:/etc"}, nil, argv.FaultFile},
		"file-named-in-a-list":      {`{parameters: {a: {flag: --a, enum: ["@me", you], separator: ",", max_items: 3}}}`, []string{"--a=@me,you"}, []string{"--a=@me,you"}, ""},
		"option-by-soft-hyphen":     {`{parameters: {a: {position: 1, free_text: true}}}`, []string{"\u00ad-x"}, nil, argv.FaultOption},
		"file-by-another-scheme":    {`{parameters: {a: {flag: --a, free_text: true}}}`, []string{"--a=https://x/@y"}, []string{"--a=https://x/@y"}, ""},
		"file-in-the-middle":        {`{parameters: {a: {flag: --a, free_text: true}}}`, []string{"--a=see profile:/x and a@b"}, []string{"--a=see profile:/x and a@b"}, ""},
		"negative-at-position":      {`{parameters: {a: {position: 1, type: integer}}}`, []string{"--", "-5"}, nil, argv.FaultOption},
		"negative-after-end":        {`{end_of_options: true, parameters: {a: {position: 1, type: integer}}}`, []string{"--", "-5"}, []string{"--", "-5"}, ""},
		"negative-with-space":       {`{parameters: {a: {flag: -a, type: integer}}}`, []string{"-a", "-5"}, []string{"-a", "-5"}, ""},
		"negative-is-no-number":     {`{parameters: {a: {flag: -a, type: integer}}}`, []string{"-a", "-5x"}, nil, argv.FaultNumber},
		"length-counts-characters":  {`{parameters: {a: {flag: --a, free_text: true, min_length: 3, max_length: 3}}}`, []string{"--a=äö€"}, []string{"--a=äö€"}, ""},
		"length-too-long":           {`{parameters: {a: {flag: --a, free_text: true, min_length: 3, max_length: 3}}}`, []string{"--a=äö€x"}, nil, argv.FaultValue},
		"length-too-short":          {`{parameters: {a: {flag: --a, free_text: true, min_length: 3, max_length: 3}}}`, []string{"--a=ä€"}, nil, argv.FaultValue},
		"range-least":               {`{parameters: {a: {flag: --a, type: number, minimum: -0.5, maximum: 2.5}}}`, []string{"--a=-0.50"}, []string{"--a=-0.5"}, ""},
		"range-most":                {`{parameters: {a: {flag: --a, type: number, minimum: -0.5, maximum: 2.5}}}`, []string{"--a=2.5"}, []string{"--a=2.5"}, ""},
		"range-below":               {`{parameters: {a: {flag: --a, type: number, minimum: -0.5, maximum: 2.5}}}`, []string{"--a=-0.51"}, nil, argv.FaultValue},
		"number-canonical":          {`{parameters: {a: {flag: --a, type: number}}}`, []string{"--a=-1.500"}, []string{"--a=-1.5"}, ""},
		"number-largest":            {`{parameters: {a: {flag: --a, type: number}}}`, []string{"--a=9007199254740991.0"}, []string{"--a=9007199254740991"}, ""},
		"number-of-16-digits":       {`{parameters: {a: {flag: --a, type: number}}}`, []string{"--a=0.1234567890123456"}, nil, argv.FaultNumber},
		"number-just-over":          {`{parameters: {a: {flag: --a, type: number, maximum: 1}}}`, []string{"--a=1.00000000000001"}, nil, argv.FaultValue},
		"integer-smallest":          {`{parameters: {a: {flag: --a, type: integer}}}`, []string{"--a=-9007199254740991"}, []string{"--a=-9007199254740991"}, ""},
		"integer-too-small":         {`{parameters: {a: {flag: --a, type: integer}}}`, []string{"--a=-9007199254740992"}, nil, argv.FaultNumber},
		"integer-full-width":        {`{parameters: {a: {flag: --a, type: integer}}}`, []string{"--a=５"}, nil, argv.FaultNumber},
		"boolean":                   {`{parameters: {a: {flag: --a, type: boolean}}}`, []string{"--a=true"}, []string{"--a"}, ""},
		"boolean-empty":             {`{parameters: {a: {flag: --a, type: boolean}}}`, []string{"--a="}, nil, argv.FaultValue},
		"boolean-twice":             {`{parameters: {a: {flag: --a, type: boolean}}}`, []string{"--a", "--a"}, nil, argv.FaultRepeat},
		"boolean-short-false":       {`{parameters: {a: {flag: -a, aliases: [--all], type: boolean}}}`, []string{"--all=false"}, nil, argv.FaultValue},
		"boolean-short-true":        {`{parameters: {a: {flag: -a, aliases: [--all], type: boolean}}}`, []string{"--all=true"}, []string{"-a"}, ""},
		"boolean-at-position":       {`{parameters: {a: {position: 1, type: boolean}}}`, []string{"false"}, []string{"false"}, ""},
		"go-style":                  {`{parameters: {a: {flag: -limit, type: integer}}}`, []string{"-limit=5"}, []string{"-limit", "5"}, ""},
		"go-style-two-dashes":       {`{parameters: {a: {flag: -limit, type: integer}}}`, []string{"--limit=5"}, nil, argv.FaultFlag},
		"go-style-equals":           {`{parameters: {a: {flag: -limit, render: equals, type: integer}}}`, []string{"-limit", "5"}, []string{"-limit=5"}, ""},
		"long-with-space":           {`{parameters: {a: {flag: --a, render: space, enum: [b]}}}`, []string{"--a=b"}, []string{"--a", "b"}, ""},
		"value-is-a-flag-name":      {`{parameters: {a: {flag: -a, free_text: true}, b: {flag: --b, type: boolean}}}`, []string{"-a", "--b"}, nil, argv.FaultOption},
		"value-holds-equals":        {`{parameters: {a: {flag: --a, free_text: true}}}`, []string{"--a=b=c"}, []string{"--a=b=c"}, ""},
		"items-too-few":             {`{parameters: {a: {flag: --a, repeat: 3, min_items: 2, enum: [b, c]}}}`, []string{"--a=b"}, nil, argv.FaultItems},
		"items-absent":              {`{parameters: {a: {flag: --a, repeat: 3, min_items: 2, enum: [b, c]}}}`, nil, []string{}, ""},
		"items-repeat-and-commas":   {`{parameters: {a: {flag: --a, separator: ",", max_items: 3, enum: [b, c]}}}`, []string{"--a=b", "--a=c"}, nil, argv.FaultRepeat},
		"items-over-two-flags":      {`{parameters: {a: {flag: --a, repeat: 1, enum: [b, c]}}}`, []string{"--a=b", "--a=c"}, nil, argv.FaultItems},
		"items-keep-doubles":        {`{parameters: {a: {flag: --a, repeat: 3, enum: [b, c]}}}`, []string{"--a=c", "--a=b", "--a=c"}, []string{"--a=c", "--a=b", "--a=c"}, ""},
		"items-negative-numbers":    {`{parameters: {a: {flag: --a, separator: ",", max_items: 3, type: number}}}`, []string{"--a", "-1,-2.0"}, []string{"--a=-1,-2"}, ""},
		"path-dot":                  {`{parameters: {a: {position: 1, kind: path}}}`, []string{"."}, []string{"."}, ""},
		"path-hidden":               {`{parameters: {a: {position: 1, kind: path}}}`, []string{".git/config"}, []string{".git/config"}, ""},
		"path-hidden-by-pattern":    {`{parameters: {a: {position: 1, kind: path, pattern: "[a-z/]+"}}}`, []string{".git/config"}, nil, argv.FaultValue},
		"path-dots-in-a-name":       {`{parameters: {a: {position: 1, kind: path}}}`, []string{"a..b/...c"}, []string{"a..b/...c"}, ""},
		"path-unicode":              {`{parameters: {a: {position: 1, kind: path}}}`, []string{"ä/ö x"}, []string{"ä/ö x"}, ""},
		"path-longest":              {`{parameters: {a: {position: 1, kind: path}}}`, []string{strings.Repeat("a", 4096)}, []string{strings.Repeat("a", 4096)}, ""},
		"path-too-long":             {`{parameters: {a: {position: 1, kind: path}}}`, []string{strings.Repeat("a", 4097)}, nil, argv.FaultPath},
		"path-dash":                 {`{parameters: {a: {position: 1, kind: path}}}`, []string{"-"}, nil, argv.FaultDash},
		"path-file":                 {`{parameters: {a: {flag: --a, kind: path}}}`, []string{"--a=@x"}, nil, argv.FaultFile},
		"variable":                  {`{parameters: {a: {env: ACME_A, enum: [b]}}}`, []string{"--a=b"}, []string{}, ""},
		"variable-twice":            {`{parameters: {a: {env: ACME_A, enum: [b]}}}`, []string{"--a=b", "--a", "b"}, nil, argv.FaultRepeat},
		"variable-value":            {`{parameters: {a: {env: ACME_A, enum: [b]}}}`, []string{"--a=c"}, nil, argv.FaultValue},
		"variable-missing":          {`{parameters: {a: {env: ACME_A, required: true, enum: [b]}}}`, nil, nil, argv.FaultMissing},
		"variable-dash-first":       {`{parameters: {a: {env: ACME_A, free_text: true}}}`, []string{"--a=-b"}, nil, argv.FaultOption},
		"stdin-has-no-flag":         {`{parameters: {in: {stdin: {}}}}`, []string{"--in=x"}, nil, argv.FaultFlag},
		"stdin-is-said-elsewhere":   {`{parameters: {in: {stdin: {}, required: true}}}`, nil, []string{}, ""},
	} {
		t.Run(label, func(t *testing.T) {
			call, err := compile(t, c.doc).Parse(c.args)
			require.Equal(t, c.kind, faultOf(t, err), "%v", err)
			require.Equal(t, c.want, call.Arguments)
			if err != nil {
				require.Zero(t, call)
				requireSafe(t, err.Error(), label)
			}
		})
	}
}

// TestLimitsCountTheRendering: each bound is allowed itself and one more is not.
func TestLimitsCountTheRendering(t *testing.T) {
	g := compile(t, `{arguments: [x], rest: {max_items: 256, pattern: "a*"}, parameters: {f: {flag: --f, repeat: 256, pattern: "a+"}}}`)
	args := func(n int, s string) []string { return slices.Repeat([]string{s}, n) }
	long := strings.Repeat("a", argv.MaxArgument)
	half := strings.Repeat("a", argv.MaxTotal/2-len("x\x00")-1)
	for label, c := range map[string]struct {
		args []string
		kind argv.Fault
		n    int
	}{
		"256-in-all":                 {args(255, "a"), "", 256},
		"257-in-all":                 {args(256, "a"), argv.FaultTooMany, 0},
		"510-said-are-256":           {slices.Repeat([]string{"--f", "a"}, 255), "", 256},
		"514-said":                   {slices.Repeat([]string{"--f", "a"}, 257), argv.FaultTooMany, 0},
		"131071-bytes":               {[]string{long}, "", 2},
		"131072-bytes":               {[]string{long + "a"}, argv.FaultTooLong, 0},
		"131072-bytes-with-its-flag": {[]string{"--f", long[:argv.MaxArgument-len("--f=")+1]}, argv.FaultTooLong, 0},
		"131071-bytes-with-its-flag": {[]string{"--f", long[:argv.MaxArgument-len("--f=")]}, "", 2},
		"256-kib":                    {[]string{half, half, "a"}, "", 4},
		"256-kib-and-one":            {[]string{half, half, "aa"}, argv.FaultTooLarge, 0},
		"512-kib":                    {[]string{long, long, long, long, long}, argv.FaultTooLarge, 0},
	} {
		t.Run(label, func(t *testing.T) {
			call, err := g.Parse(c.args)
			require.Equal(t, c.kind, faultOf(t, err))
			require.Len(t, call.Arguments, c.n)
		})
	}
	env := compile(t, `{parameters: {a: {env: ACME_A, free_text: true}, b: {env: ACME_B, free_text: true}}}`)
	_, err := env.Parse([]string{"--a", long[:argv.MaxArgument-len("ACME_A=")]})
	require.NoError(t, err)
	_, err = env.Parse([]string{"--a", long[:argv.MaxArgument-len("ACME_A=")+1]})
	require.Equal(t, argv.FaultTooLong, faultOf(t, err))
}

// TestErrorsHideValues: no value that was said is in a message, secret or not.
func TestErrorsHideValues(t *testing.T) {
	const canary = "c4nary"
	g := compile(t, `{arguments: [x], rest: {max_items: 1, pattern: "[0-9]"}, parameters: {
	  enum: {flag: --enum, enum: [a]}, int: {flag: --int, type: integer}, pat: {flag: --pat, pattern: "[0-9]"},
	  key: {env: ACME_A, secret: true, const: s3cret}, pos: {position: 1, required: true, kind: path}}}`)
	for _, args := range [][]string{
		{"--enum", canary},
		{"--enum=" + canary},
		{"--int=" + canary},
		{"--pat=" + canary},
		{"--key", canary},
		{"--key=" + canary},
		{"p", canary},
		{"p", "1", canary},
		{"--pat=@" + canary},
		{"--pat=-" + canary},
		{"../" + canary},
		{"p", "--unknown=" + canary},
		{"--" + canary + " x"},
		{"-k" + canary},
		{"-k=" + canary},
		{"p", canary + "\x00"},
		{"--pat", canary + "\xff"},
		{"--=" + canary},
	} {
		_, err := g.Parse(args)
		require.Error(t, err, "%q", args)
		require.NotContains(t, err.Error(), canary, "%q", args)
		require.NotContains(t, err.Error(), "s3cret", "%q", args)
	}
	for _, object := range []string{`{"key":"c4nary"}`, `{"enum":"c4nary"}`, `{"int":"c4nary"}`, `{"pat":["c4nary"]}`, `{"pos":"c4nary`, `{"rest":["c4nary"]}`} {
		_, err := g.FromObject([]byte(object))
		require.Error(t, err, object)
		require.NotContains(t, err.Error(), canary, object)
		require.NotContains(t, err.Error(), "s3cret", object)
	}
}

func TestErrorText(t *testing.T) {
	g := compile(t, `{arguments: [x], parameters: {repo: {flag: --repo, aliases: [-R], required: true, enum: [a/b, c/d]},
	  limit: {flag: --limit, type: integer, maximum: 9}, path: {position: 1, kind: path}, pick: {flag: --pick, type: integer, enum: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]}}}`)
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, `refuse parameter repo: missing: want --repo`},
		{[]string{"--repo", "x"}, `refuse argument 2, parameter repo "--repo": not-allowed: want one of "a/b", "c/d"`},
		{[]string{"-R=a/b"}, `refuse argument 1 "-R": flag-cluster: want the value in the next argument`},
		{[]string{"-Ra/b"}, `refuse argument 1 "-R": flag-cluster: want one flag an argument, and its value after '=' or in the next`},
		{[]string{"--rep=a/b"}, `refuse argument 1 "--rep": undeclared-flag: flags are not abbreviated: want --repo`},
		{[]string{"--web"}, `refuse argument 1 "--web": undeclared-flag`},
		{[]string{"--w\u00e9b"}, `refuse argument 1: undeclared-flag`},
		{[]string{"-R", "a/b", "--limit=10"}, `refuse argument 3, parameter limit "--limit": not-allowed: want at most 9`},
		{[]string{"-R", "a/b", "--pick=11"}, `refuse argument 3, parameter pick "--pick": not-allowed: want one of "1", "2", "3", "4", "5", "6", "7", "8", …`},
		{[]string{"-R", "a/b", "../x"}, `refuse argument 3, parameter path: not-a-path: want a clean relative path with slashes`},
		{[]string{"a", "b"}, `refuse argument 2: extra-argument`},
		{[]string{"--repo"}, `refuse argument 1, parameter repo "--repo": missing: want a value`},
	} {
		_, err := g.Parse(c.args)
		require.EqualError(t, err, c.want, "%q", c.args)
	}
	_, err := g.FromObject([]byte(`{"web\u202e": true}`))
	require.EqualError(t, err, `refuse arguments "web\u202e": object: unknown key`)
	require.Equal(t, "a: b", (&argv.DeclarationError{Path: "a", Msg: "b"}).Error())
	require.Equal(t, "b", (&argv.DeclarationError{Msg: "b"}).Error())
}

func TestNarrow(t *testing.T) {
	c := declare(t, `{arguments: [x], parameters: {
	  repo: {flag: --repo, pattern: "[a-z]+/[a-z]+"}, who: {flag: --who, enum: ["@me", ann]}, n: {flag: -n, type: integer, required: true, minimum: 1},
	  pos: {position: 1, free_text: true, min_length: 0}, last: {position: 2, free_text: true}, in: {stdin: {}}}}`)
	p := func(s string) name.Parameter { return mustParameter(t, s) }
	one := func(key string, n argv.Narrowing) map[name.Parameter]argv.Narrowing {
		return map[name.Parameter]argv.Narrowing{p(key): n}
	}
	compiled := func(by map[name.Parameter]argv.Narrowing) *argv.Grammar {
		narrow, err := c.Narrow(by)
		require.NoError(t, err)
		g, err := narrow.Compile(argv.Contract{Command: "tool"})
		require.NoError(t, err)
		return g
	}
	kind := func(g *argv.Grammar, args ...string) argv.Fault {
		_, err := g.Parse(append([]string{"-n", "1"}, args...))
		return faultOf(t, err)
	}
	pin := argv.Schema{Enum: []string{"acme/site"}}
	g := compiled(one("repo", argv.Narrowing{Schema: &pin, Required: true}))
	require.Empty(t, kind(g, "--repo=acme/site"))
	require.Equal(t, argv.FaultValue, kind(g, "--repo=acme/docs"))
	require.Equal(t, argv.FaultMissing, kind(g), "a pin cannot be left out")

	g = compiled(one("repo", argv.Narrowing{Schema: &argv.Schema{Enum: []string{"acme/site", "ACME"}}}))
	require.Equal(t, argv.FaultValue, kind(g, "--repo=ACME"), "what is declared still holds")
	g = compiled(one("repo", argv.Narrowing{Schema: &argv.Schema{Enum: []string{"@file", "-x"}}}))
	require.Equal(t, argv.FaultFile, kind(g, "--repo=@file"), "a narrowing names nothing")
	require.Equal(t, argv.FaultOption, kind(g, "--repo=-x"))
	g = compiled(one("who", argv.Narrowing{Schema: &argv.Schema{Pattern: "@.*"}}))
	require.Empty(t, kind(g, "--who=@me"), "what is declared is named still")
	require.Equal(t, argv.FaultValue, kind(g, "--who=ann"))
	g = compiled(one("who", argv.Narrowing{Forbidden: true}))
	require.Equal(t, argv.FaultFlag, kind(g, "--who=ann"))
	g = compiled(one("who", argv.Narrowing{Schema: &argv.Schema{Enum: []string{}}}))
	require.Equal(t, argv.FaultValue, kind(g, "--who=ann"), "present but empty accepts nothing")
	g = compiled(one("last", argv.Narrowing{Forbidden: true}))
	require.Equal(t, argv.FaultExtra, kind(g, "a", "b"))
	g = compiled(map[name.Parameter]argv.Narrowing{p("n"): {Schema: &argv.Schema{Maximum: ptr(5.0)}}, p("in"): {Forbidden: true}})
	call, err := g.Parse([]string{"-n", "5"})
	require.NoError(t, err)
	require.Nil(t, call.Stdin)
	_, err = g.Parse([]string{"-n", "6"})
	require.Equal(t, argv.FaultValue, faultOf(t, err))
	_, err = g.Parse([]string{"-n", "0"})
	require.Equal(t, argv.FaultValue, faultOf(t, err))

	before := canonical(t, c.Semantics())
	for label, by := range map[string]map[name.Parameter]argv.Narrowing{
		"unknown":             one("nope", argv.Narrowing{Required: true}),
		"forbidden-required":  one("n", argv.Narrowing{Forbidden: true}),
		"forbidden-and-more":  one("who", argv.Narrowing{Forbidden: true, Required: true}),
		"forbidden-gap":       one("pos", argv.Narrowing{Forbidden: true}),
		"another-type":        one("n", argv.Narrowing{Schema: &argv.Schema{Type: argv.TypeString}}),
		"pattern-on-integer":  one("n", argv.Narrowing{Schema: &argv.Schema{Pattern: "1"}}),
		"bad-pattern":         one("repo", argv.Narrowing{Schema: &argv.Schema{Pattern: "("}}),
		"bad-enum":            one("n", argv.Narrowing{Schema: &argv.Schema{Enum: []string{"01"}}}),
		"stdin":               one("in", argv.Narrowing{Schema: &argv.Schema{MaxLength: ptr(1)}}),
		"kind":                one("repo", argv.Narrowing{Schema: &argv.Schema{Kind: argv.KindPath}}),
		"second-is-required":  one("last", argv.Narrowing{Required: true}),
		"unknown-zero-parame": {name.Parameter{}: {Required: true}},
	} {
		t.Run(label, func(t *testing.T) {
			narrow, err := c.Narrow(by)
			require.NotEmpty(t, faultsOf(t, err))
			require.Zero(t, narrow)
		})
	}
	same, err := c.Narrow(nil)
	require.NoError(t, err)
	require.Equal(t, before, canonical(t, same.Semantics()))
	require.Equal(t, before, canonical(t, c.Semantics()), "the receiver is not changed")
}

// TestGrammarIsConcurrent is for the race detector.
func TestGrammarIsConcurrent(t *testing.T) {
	g := compile(t, `{arguments: [x], parameters: {n: {flag: -n, type: integer}, s: {flag: --s, pattern: "[a-z]+"}}}`)
	done := make(chan error)
	for i := range 4 {
		go func() {
			_, err := g.Parse([]string{"-n", strconv.Itoa(i), "--s=abc"})
			_ = g.InputSchema()
			done <- err
		}()
	}
	for range 4 {
		require.NoError(t, <-done)
	}
}
