package argv_test

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lendcli/lend/protocol/argv"
	"github.com/lendcli/lend/protocol/name"
)

// The models draw whole commands, so that places, lists, renderings and schemas
// meet in every combination.

var drawnVariables = []string{"ACME_A", "ACME_B", "ACME_C"}

func drawnContract() argv.Contract {
	return argv.Contract{Command: "tool", Arguments: []string{"-q"}, Environment: drawnVariables}
}

// tricky are values that look like something else, or nearly do.
var tricky = []string{
	"", "-", "--", "-x", "--x", "--flag-a", "-5", "-0", "5", "05", "1e3", "1.50", "-0.5", "0.1", "9007199254740992", "9007199254740991",
	"true", "false", "@me", "@file", "file:///x", "FILE:/x", "k=@x", "a,b", ",a", "a,", "a", "b", "ab", "a b", "src/x.go", "../x", "/x", "x/", ".",
	"ä", "\u2212x", "\u202ex", "a\x00", "\xff", "a\nb", "--flag-a=a", "-b=a", "-ab", "--flag-a=-x", "--flag-a=@x", "--ACME_A=a", "a=b",
}

func drawSchema(t *rapid.T, d *argv.ParameterDeclaration) {
	switch rapid.IntRange(0, 7).Draw(t, "schema") {
	case 0:
		d.Enum = []any{"a", "b", "@me"}
	case 1:
		d.Pattern = "[a-c]{1,3}|a b"
	case 2:
		d.FreeText = true
	case 3:
		d.FreeText = true
		d.MinLength = new(int)
	case 4:
		d.Kind = argv.KindPath
	case 5:
		d.Type = argv.TypeInteger
		low, high := -7.0, 1e6
		d.Minimum, d.Maximum = &low, &high
	case 6:
		d.Type = argv.TypeNumber
	case 7:
		d.Type = argv.TypeBoolean
	}
}

func drawDeclaration(t *rapid.T) argv.Declaration {
	d := argv.Declaration{
		Arguments:    []string{"do"},
		EndOfOptions: rapid.Bool().Draw(t, "end"),
		Parameters:   map[string]argv.ParameterDeclaration{},
	}
	for i, p := range []string{"flag-a", "flag-b", "flag-c"} {
		if !rapid.Bool().Draw(t, p) {
			continue
		}
		q := argv.ParameterDeclaration{Flag: []string{"--flag-a", "-b", "-go-c"}[i], Required: rapid.IntRange(0, 3).Draw(t, "required") == 0}
		drawSchema(t, &q)
		if i == 0 {
			q.Aliases = []string{"-a", "--first"}
			q.Render = rapid.SampledFrom([]argv.Render{"", argv.RenderEquals, argv.RenderSpace}).Draw(t, "render")
		}
		numeric := q.Type == argv.TypeInteger || q.Type == argv.TypeNumber
		switch list := rapid.IntRange(0, 3).Draw(t, "list"); {
		case q.Type == argv.TypeBoolean:
		case list == 0:
			q.Repeat = rapid.IntRange(1, 3).Draw(t, "repeat")
			q.MinItems = rapid.IntRange(0, q.Repeat).Draw(t, "least")
		case list == 1 && !(numeric && (i == 1 || q.Render == argv.RenderSpace)) && !(i == 2 && numeric):
			q.Separator, q.MaxItems = ",", 3
		}
		d.Parameters[p] = q
	}
	required := false
	n := rapid.IntRange(0, 2).Draw(t, "positions")
	for i := n; i > 0; i-- {
		required = required || rapid.Bool().Draw(t, "required")
		q := argv.ParameterDeclaration{Position: i, Required: required}
		drawSchema(t, &q)
		if i == n && q.Type != argv.TypeBoolean && rapid.Bool().Draw(t, "list") {
			q.MaxItems = 3
		}
		d.Parameters["pos-"+strconv.Itoa(i)] = q
	}
	if rapid.IntRange(0, 3).Draw(t, "rest") == 0 {
		d.Rest = &argv.Rest{MaxItems: 3, Pattern: "[a-z./ ]+"}
	}
	if rapid.Bool().Draw(t, "env") {
		q := argv.ParameterDeclaration{Env: "ACME_A", Secret: rapid.Bool().Draw(t, "secret"), FreeText: true}
		d.Parameters["env-a"] = q
	}
	return d
}

// drawCommand skips what Validate refuses, such as an optional position before a
// tail.
func drawCommand(t *rapid.T) argv.Command {
	command, err := drawDeclaration(t).Command(mustName(name.ParseCommand("do.it")))
	if err != nil {
		t.Skip(err)
	}
	return command
}

func mustName[T any](n T, err error) T {
	if err != nil {
		panic(err)
	}
	return n
}

// drawArgs says things in the command's own words, so that many are accepted.
func drawArgs(t *rapid.T, c argv.Command) []string {
	words := rapid.OneOf(rapid.SampledFrom(tricky), rapid.SampledFrom([]string{"a", "b", "5", "true", "src/x.go", "abc"}))
	var args []string
	for _, q := range c.Parameters {
		for range rapid.SampledFrom([]int{1, 1, 1, 0, 2}).Draw(t, "times") {
			value := words.Draw(t, "value")
			switch {
			case q.Flag != nil && q.Schemas[0].Type == argv.TypeBoolean && rapid.Bool().Draw(t, "plain"):
				args = append(args, q.Flag.Name)
			case q.Flag != nil && rapid.Bool().Draw(t, "attached"):
				args = append(args, q.Flag.Name+"="+value)
			case q.Flag != nil:
				spelled := rapid.SampledFrom(append([]string{q.Flag.Name}, q.Flag.Aliases...)).Draw(t, "spelled")
				args = append(args, spelled, value)
			case q.Variable != "":
				args = append(args, "--"+q.Name.String()+"="+value)
			default:
				args = append(args, value)
			}
		}
	}
	if rapid.IntRange(0, 3).Draw(t, "more") == 0 {
		at := rapid.IntRange(0, len(args)).Draw(t, "at")
		args = append(args[:at:at], append([]string{words.Draw(t, "extra")}, args[at:]...)...)
	}
	return args
}

// spell writes a call as a caller would: what was rendered, and the variables.
func spell(call argv.Call, c argv.Command, prefix int) []string {
	var args []string
	for _, v := range call.Environment {
		for _, q := range c.Parameters {
			if q.Variable == v.Name {
				args = append(args, "--"+q.Name.String()+"="+v.Value)
			}
		}
	}
	return append(args, call.Arguments[prefix:]...)
}

// objectOf writes a call as the object that an agent would send.
func objectOf(t require.TestingT, call argv.Call, c argv.Command) []byte {
	out := map[string]any{}
	for _, v := range call.Values {
		out[v.Parameter.String()] = v.Items // the tail, unless it is declared
		for _, q := range c.Parameters {
			if q.Name != v.Parameter {
				continue
			}
			items := []any{}
			for _, item := range v.Items {
				switch q.Schemas[0].Type {
				case argv.TypeInteger, argv.TypeNumber:
					items = append(items, json.Number(item))
				case argv.TypeBoolean:
					items = append(items, item == "true")
				default:
					items = append(items, item)
				}
			}
			out[v.Parameter.String()] = items[0]
			if q.List != nil {
				out[v.Parameter.String()] = items
			}
		}
	}
	data, err := json.Marshal(out)
	require.NoError(t, err)
	return data
}

func compileSchema(t require.TestingT, g *argv.Grammar) *jsonschema.Schema {
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(string(g.InputSchema())))
	require.NoError(t, err)
	c := jsonschema.NewCompiler()
	require.NoError(t, c.AddResource("mem:input", doc))
	s, err := c.Compile("mem:input")
	require.NoError(t, err)
	return s
}

// TestModelOneSpelling: what is accepted is rendered in a spelling that reads as
// itself, an object that says the same gives the same Call, and the schema for
// agents admits that object.
func TestModelOneSpelling(t *testing.T) {
	accepted := 0
	rapid.Check(t, func(t *rapid.T) {
		c := drawCommand(t)
		g, err := c.Compile(drawnContract())
		require.NoError(t, err)
		call, err := g.Parse(drawArgs(t, c))
		if err != nil {
			require.Zero(t, call)
			return
		}
		accepted++
		again, err := g.Parse(spell(call, c, 2))
		require.NoError(t, err, "%q", call.Arguments)
		require.Equal(t, call, again)
		requireCall(t, call, c)

		object := objectOf(t, call, c)
		same, err := g.FromObject(object)
		require.NoError(t, err, "%s", object)
		require.Equal(t, call, same, "%s", object)

		value, err := jsonschema.UnmarshalJSON(strings.NewReader(string(object)))
		require.NoError(t, err)
		require.NoError(t, compileSchema(t, g).Validate(value), "%s\n%s", object, g.InputSchema())
	})
	require.Positive(t, accepted)
}

// requireCall checks what must hold for every Call, whatever was said.
func requireCall(t require.TestingT, call argv.Call, c argv.Command) {
	require.Equal(t, []string{"-q", "do"}, call.Arguments[:2])
	require.LessOrEqual(t, len(call.Arguments), argv.MaxArguments)
	for _, p := range call.Paths {
		require.True(t, strings.HasPrefix(call.Arguments[p.Index][p.Offset:], p.Path), "%+v in %q", p, call.Arguments)
	}
	known := map[string]bool{"--": c.EndOfOptions}
	for _, q := range c.Parameters {
		if q.Flag != nil {
			known[q.Flag.Name] = true
		}
		for _, v := range call.Values {
			if q.Secret && v.Parameter == q.Name {
				require.NotContains(t, call.Arguments, v.Items[0]+"\x00")
			}
		}
	}
	for i, a := range call.Arguments[2:] {
		if a == "--" {
			break // what follows is positional
		}
		flag, _, _ := strings.Cut(a, "=")
		before := call.Arguments[i+1]
		number := known[before] && strings.Trim(a, "-0123456789.") == "" // of a flag rendered with a space
		if len(a) > 1 && a[0] == '-' && !number {
			require.True(t, known[flag], "an option that is not declared: %q", call.Arguments)
		}
	}
}

// TestModelNarrowNeverWidens: what a narrowed command accepts the original
// accepts, with the same Call.
func TestModelNarrowNeverWidens(t *testing.T) {
	accepted, refused := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		c := drawCommand(t)
		narrow, err := c.Narrow(drawNarrowing(t, c))
		if err != nil {
			refused++
			return
		}
		if rapid.Bool().Draw(t, "twice") {
			if twice, err := narrow.Narrow(drawNarrowing(t, narrow)); err == nil {
				narrow = twice
			}
		}
		wide, err := c.Compile(drawnContract())
		require.NoError(t, err)
		g, err := narrow.Compile(drawnContract())
		require.NoError(t, err)
		args := drawArgs(t, c)
		call, err := g.Parse(args)
		if err != nil {
			return
		}
		accepted++
		want, err := wide.Parse(args)
		require.NoError(t, err, "%q", args)
		require.Equal(t, want, call)

		object := objectOf(t, call, c)
		same, err := wide.FromObject(object)
		require.NoError(t, err)
		require.Equal(t, want, same)
	})
	require.Positive(t, accepted)
	require.Positive(t, refused)
}

func drawNarrowing(t *rapid.T, c argv.Command) map[name.Parameter]argv.Narrowing {
	by := map[name.Parameter]argv.Narrowing{}
	for _, q := range c.Parameters {
		var n argv.Narrowing
		switch rapid.IntRange(0, 6).Draw(t, "narrow") {
		case 0:
			n.Required = true
		case 1:
			n.Forbidden = true
		case 2:
			n.Schema = &argv.Schema{FreeText: q.Schemas[0].Type == argv.TypeString}
		case 3:
			n.Schema = &argv.Schema{Enum: []string{"a", "@me", "-x", ""}}
			if q.Schemas[0].Type != argv.TypeString {
				n.Schema.Enum = []string{"5"}
			}
			if q.Schemas[0].Type == argv.TypeBoolean {
				n.Schema.Enum = []string{"true"}
			}
		case 4:
			n.Schema = &argv.Schema{Pattern: ".*", MinLength: new(int)}
			if q.Schemas[0].Type != argv.TypeString {
				n.Schema = &argv.Schema{Enum: []string{}}
			}
		default:
			continue
		}
		by[q.Name] = n
	}
	return by
}

// TestModelObjects: whatever an object says, an equal command line says the same.
func TestModelObjects(t *testing.T) {
	accepted := 0
	rapid.Check(t, func(t *rapid.T) {
		c := drawCommand(t)
		g, err := c.Compile(drawnContract())
		require.NoError(t, err)
		object := map[string]any{}
		for _, q := range c.Parameters {
			var scalar any = rapid.SampledFrom(tricky).Draw(t, "value")
			switch {
			case !rapid.Bool().Draw(t, "typed"):
			case q.Schemas[0].Type == argv.TypeBoolean:
				scalar = rapid.Bool().Draw(t, "bool")
			case q.Schemas[0].Type != argv.TypeString:
				scalar = json.Number(rapid.SampledFrom([]string{"1", "-5", "0.5", "1e3", "1.50", "-0", "9007199254740993"}).Draw(t, "number"))
			}
			switch rapid.IntRange(0, 4).Draw(t, "say") {
			case 0:
			case 1:
				object[q.Name.String()] = []any{scalar, scalar}
			default:
				object[q.Name.String()] = scalar
				if q.List != nil {
					object[q.Name.String()] = []any{scalar}
				}
			}
		}
		data, err := json.Marshal(object)
		require.NoError(t, err)
		call, err := g.FromObject(data)
		if err != nil {
			require.Zero(t, call)
			return
		}
		accepted++
		same, err := g.Parse(spell(call, c, 2))
		require.NoError(t, err, "%s: %q", data, call.Arguments)
		require.Equal(t, call, same)
	})
	require.Positive(t, accepted)
}

// TestModelSurvivesJSON: a Command may be stored with encoding/json, as a frozen
// grant is.
func TestModelSurvivesJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawCommand(t)
		if narrow, err := c.Narrow(drawNarrowing(t, c)); err == nil {
			c = narrow
		}
		data, err := json.Marshal(c)
		require.NoError(t, err)
		var back argv.Command
		require.NoError(t, json.Unmarshal(data, &back))
		require.Equal(t, canonical(t, c.Semantics()), canonical(t, back.Semantics()))
		require.Equal(t, fmt.Sprintf("%#v", c.Name), fmt.Sprintf("%#v", back.Name))
		_, err = back.Compile(drawnContract())
		require.NoError(t, err)
	})
}

func canonical(t require.TestingT, v any) string {
	data, err := argv.CanonicalJSON(v)
	require.NoError(t, err)
	return string(data)
}
