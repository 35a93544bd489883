package argv_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/protocol/argv"
)

const objectDoc = `{arguments: [x], summary: Do it, rest: {max_items: 2, pattern: "[a-z]+"}, parameters: {
  repo: {flag: --repo, required: true, enum: [a/b, c/d], description: where},
  limit: {flag: --limit, type: integer, minimum: 1, maximum: 100},
  rate: {flag: --rate, type: number},
  web: {flag: --web, type: boolean},
  wide: {flag: -w, type: boolean},
  tag: {flag: --tag, repeat: 3, min_items: 2, pattern: "[a-z]+"},
  cols: {flag: --cols, separator: ",", max_items: 3, free_text: true},
  who: {position: 1, required: true, free_text: true, max_length: 20},
  zone: {env: ACME_A, const: eu},
  body: {stdin: {max_bytes: 20}}}}`

func TestFromObject(t *testing.T) {
	g := compile(t, objectDoc)
	call, err := g.FromObject([]byte(` {"who":"ann b","repo":"a\/b","rest":["x","y"],"limit":5,"rate":-0.50,"web":false,"wide":true,
	  "tag":["b","a"],"cols":["k","l m"],"zone":"eu","body":"two\nlines"} `))
	require.NoError(t, err)
	want, err := g.Parse([]string{"-w", "--web=false", "--zone=eu", "--rate=-0.5", "--cols=k,l m", "--tag=b", "--tag=a", "--limit=5", "--repo=a/b", "ann b", "x", "y"})
	require.NoError(t, err)
	require.Equal(t, "two\nlines", *call.Input)
	require.Nil(t, want.Input)
	call.Input = nil
	require.Equal(t, want, call)

	call, err = g.FromObject([]byte(`{"who":"ann","repo":"a/b","tag":[],"rest":[]}`))
	require.NoError(t, err)
	require.Equal(t, []string{"x", "--repo=a/b", "ann"}, call.Arguments, "an empty list says nothing")
}

// JSON Schema says that 5.0 is an integer; it is said as 5, also in a list.
func TestIntegersOfJSON(t *testing.T) {
	g := compile(t, `{arguments: [x], parameters: {limit: {flag: --limit, type: integer, maximum: 100}, many: {flag: --many, type: integer, repeat: 3}}}`)
	for said, want := range map[string]string{
		`{"limit":5.0}`: "x --limit=5", `{"limit":-70.000}`: "x --limit=-70", `{"limit":0.0,"many":[1.0,2,30.00]}`: "x --limit=0 --many=1 --many=2 --many=30",
	} {
		call, err := g.FromObject([]byte(said))
		require.NoError(t, err, said)
		require.Equal(t, want, strings.Join(call.Arguments, " "))
	}
}

func TestFromObjectRefuses(t *testing.T) {
	g := compile(t, objectDoc)
	for label, c := range map[string]struct {
		object string
		kind   argv.Fault
	}{
		"nothing":              {``, argv.FaultObject},
		"null":                 {`null`, argv.FaultObject},
		"array":                {`["ann"]`, argv.FaultObject},
		"string":               {`"ann"`, argv.FaultObject},
		"cut":                  {`{"who":"ann"`, argv.FaultObject},
		"two-objects":          {`{"who":"ann","repo":"a/b"}{}`, argv.FaultObject},
		"trailing-bytes":       {`{"who":"ann","repo":"a/b"} x`, argv.FaultObject},
		"duplicate":            {`{"who":"ann","repo":"a/b","repo":"a/b"}`, argv.FaultObject},
		"duplicate-by-escape":  {`{"who":"ann","repo":"a/b","r\u0065po":"c/d"}`, argv.FaultObject},
		"unknown":              {`{"who":"ann","repo":"a/b","jq":"env"}`, argv.FaultObject},
		"another-case":         {`{"who":"ann","Repo":"a/b"}`, argv.FaultObject},
		"flag-for-name":        {`{"who":"ann","--repo":"a/b"}`, argv.FaultObject},
		"deep":                 {`{"who":"ann","repo":"a/b","tag":[["a"]]}`, argv.FaultObject},
		"null-value":           {`{"who":"ann","repo":null}`, argv.FaultObject},
		"number-for-string":    {`{"who":1,"repo":"a/b"}`, argv.FaultObject},
		"string-for-integer":   {`{"who":"ann","repo":"a/b","limit":"5"}`, argv.FaultObject},
		"string-for-boolean":   {`{"who":"ann","repo":"a/b","web":"true"}`, argv.FaultObject},
		"number-for-boolean":   {`{"who":"ann","repo":"a/b","web":1}`, argv.FaultObject},
		"scalar-for-list":      {`{"who":"ann","repo":"a/b","tag":"a"}`, argv.FaultObject},
		"list-for-scalar":      {`{"who":["ann"],"repo":"a/b"}`, argv.FaultObject},
		"mixed-list":           {`{"who":"ann","repo":"a/b","tag":["a",1]}`, argv.FaultObject},
		"rest-scalar":          {`{"who":"ann","repo":"a/b","rest":"x"}`, argv.FaultObject},
		"rest-numbers":         {`{"who":"ann","repo":"a/b","rest":[1]}`, argv.FaultObject},
		"rest-items":           {`{"who":"ann","repo":"a/b","rest":["x","y","z"]}`, argv.FaultItems},
		"rest-pattern":         {`{"who":"ann","repo":"a/b","rest":["X"]}`, argv.FaultValue},
		"rest-control":         {`{"who":"ann","repo":"a/b","rest":["x\u0000"]}`, argv.FaultControl},
		"rest-option":          {`{"who":"ann","repo":"a/b","rest":["--web"]}`, argv.FaultOption},
		"position-option":      {`{"who":"--web","repo":"a/b"}`, argv.FaultOption},
		"position-file":        {`{"who":"@x","repo":"a/b"}`, argv.FaultFile},
		"exponent":             {`{"who":"ann","repo":"a/b","limit":1e1}`, argv.FaultNumber},
		"fraction":             {`{"who":"ann","repo":"a/b","limit":5.5}`, argv.FaultNumber},
		"fraction-of-zeros":    {`{"who":"ann","repo":"a/b","limit":101.00}`, argv.FaultValue},
		"fraction-and-zeros":   {`{"who":"ann","repo":"a/b","limit":5.0100}`, argv.FaultNumber},
		"exponent-of-fraction": {`{"who":"ann","repo":"a/b","limit":5.0e1}`, argv.FaultNumber},
		"minus-zero":           {`{"who":"ann","repo":"a/b","rate":-0}`, argv.FaultNumber},
		"over":                 {`{"who":"ann","repo":"a/b","limit":101}`, argv.FaultValue},
		"short-false":          {`{"who":"ann","repo":"a/b","wide":false}`, argv.FaultValue},
		"missing":              {`{"who":"ann"}`, argv.FaultMissing},
		"missing-position":     {`{"repo":"a/b"}`, argv.FaultMissing},
		"few-items":            {`{"who":"ann","repo":"a/b","tag":["a"]}`, argv.FaultItems},
		"many-items":           {`{"who":"ann","repo":"a/b","tag":["a","b","c","d"]}`, argv.FaultItems},
		"item-holds-separator": {`{"who":"ann","repo":"a/b","cols":["a,b"]}`, argv.FaultValue},
		"item-file":            {`{"who":"ann","repo":"a/b","cols":["a","@b"]}`, argv.FaultFile},
		"item-empty":           {`{"who":"ann","repo":"a/b","cols":[""]}`, argv.FaultEmpty},
		"control":              {`{"who":"a\nb","repo":"a/b"}`, argv.FaultControl},
		"bidi":                 {`{"who":"a\u202eb","repo":"a/b"}`, argv.FaultControl},
		"lone-surrogate":       {`{"who":"\ud800","repo":"a/b"}`, argv.FaultObject},
		"not-utf-8":            {"{\"who\":\"\xff\",\"repo\":\"a/b\"}", argv.FaultObject},
		"input-too-large":      {`{"who":"ann","repo":"a/b","body":"aaaaaaaaaaaaaaaaaaaaa"}`, argv.FaultTooLarge},
		"input-number":         {`{"who":"ann","repo":"a/b","body":1}`, argv.FaultObject},
		"too-large":            {`{"who":"` + strings.Repeat("a", argv.MaxObject) + `"}`, argv.FaultObject},
	} {
		t.Run(label, func(t *testing.T) {
			call, err := g.FromObject([]byte(c.object))
			require.Equal(t, c.kind, faultOf(t, err), "%v", err)
			require.Zero(t, call)
			requireSafe(t, err.Error(), label)
		})
	}
	gap := compile(t, `{parameters: {a: {position: 1, enum: [x]}, b: {position: 2, enum: [y]}}}`)
	_, err := gap.FromObject([]byte(`{"b":"y"}`))
	require.Equal(t, argv.FaultMissing, faultOf(t, err), "a later position alone would be the first")
	need := compile(t, `{parameters: {in: {stdin: {}, required: true}}}`)
	_, err = need.FromObject([]byte(`{}`))
	require.Equal(t, argv.FaultMissing, faultOf(t, err))
}

// spec: CATALOG-4 and CATALOG-5.
func TestInputSchema(t *testing.T) {
	c := declare(t, objectDoc)
	c, err := c.Narrow(narrowRepo(t))
	require.NoError(t, err)
	g, err := c.Compile(argv.Contract{Command: "tool", Environment: []string{"ACME_A"}})
	require.NoError(t, err)
	require.JSONEq(t, `{
	  "$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object", "additionalProperties": false, "description": "Do it",
	  "x-lend-arguments": ["x"],
	  "required": ["repo", "who"],
	  "properties": {
	    "repo": {"x-lend-place": {"flag": "--repo"}, "type": "string", "enum": ["a/b", "c/d"], "description": "where", "allOf": [{"type": "string", "enum": ["a/b"]}]},
	    "limit": {"x-lend-place": {"flag": "--limit"}, "type": "integer", "minimum": 1, "maximum": 100},
	    "rate": {"x-lend-place": {"flag": "--rate"}, "type": "number"},
	    "web": {"x-lend-place": {"flag": "--web"}, "type": "boolean"},
	    "wide": {"x-lend-place": {"flag": "-w"}, "type": "boolean", "const": true},
	    "tag": {"x-lend-place": {"flag": "--tag"}, "type": "array", "maxItems": 3, "items": {"type": "string", "minLength": 1, "pattern": "^(?:[a-z]+)$"}},
	    "cols": {"x-lend-place": {"flag": "--cols", "separator": ","}, "type": "array", "maxItems": 3, "items": {"type": "string", "minLength": 1}},
	    "who": {"x-lend-place": {"position": 1}, "type": "string", "minLength": 1, "maxLength": 20},
	    "zone": {"x-lend-place": {"flag": "--zone"}, "type": "string", "const": "eu"},
	    "body": {"x-lend-place": {"stdin": true}, "type": "string", "maxLength": 20},
	    "rest": {"x-lend-place": {"rest": true}, "type": "array", "maxItems": 2, "items": {"type": "string", "minLength": 1, "pattern": "^(?:[a-z]+)$"}}
	  }}`, string(g.InputSchema()))
	again, err := argv.CanonicalJSON(g.InputSchema())
	require.NoError(t, err)
	require.Equal(t, string(again), string(g.InputSchema()), "it is canonical")

	s := compileSchema(t, g)
	for _, object := range []string{`{"who":"ann"}`, `{"who":"ann","repo":"c/d"}`, `{"who":"ann","repo":"a/b","jq":"env"}`, `{"who":"","repo":"a/b"}`} {
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(object))
		require.NoError(t, err)
		require.Error(t, s.Validate(v), object)
		_, err = g.FromObject([]byte(object))
		require.Error(t, err, object)
	}
}

// TestInputSchemaPatterns: an expression that ECMAScript reads in another way
// stays here.
func TestInputSchemaPatterns(t *testing.T) {
	for pattern, shown := range map[string]bool{
		`[a-z]+(\.[a-z_]{1,4}){0,4}`: true, `v\d+|HEAD`: true, `(?:a|b)*`: true, `a\/b\-c`: true,
		`(?i)abc`: false, `(?P<x>a)`: false, `\pL+`: false, `[[:alpha:]]`: false, `\Qa.b\E`: false, `\Aa`: false, `a\z`: false, `\x{10ffff}`: false,
		`\C`: false, `[]a]`: false, `[^]a]`: false, `ä`: false, `\s`: false,
	} {
		var d argv.Declaration
		data, err := json.Marshal(map[string]any{"parameters": map[string]any{"a": map[string]any{"flag": "--a", "pattern": pattern}}})
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(data, &d))
		c, err := d.Command(mustCommand(t, "test"))
		if err != nil {
			require.False(t, shown, pattern) // RE2 does not know it either
			continue
		}
		g, err := c.Compile(argv.Contract{Command: "tool"})
		require.NoError(t, err)
		require.Equal(t, shown, strings.Contains(string(g.InputSchema()), `"pattern"`), pattern)
	}
}
