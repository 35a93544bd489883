package strict

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func read(t *testing.T, text string) *Document {
	t.Helper()
	d, err := Parse("f.yaml", []byte(text), 1<<20)
	require.NoError(t, err)
	return d
}

func TestScalars(t *testing.T) {
	for text, want := range map[string]Kind{
		"true": Bool, "false": Bool, "0": Int, "7": Int, "-7": Int, "1.5": Number, "-0.5": Number, "10.25": Number,
		"x": String, "y": String, "n": String, "a b": String, "64MiB": String, "1h30m": String, "2.96.0": String, "12D3KooW": String, "'on'": String,
		`"010"`: String, `""`: String, "-x": String, "a#b": String, "x:y": String, "0s": String,
		"~": Null, "null": Null, "Null": Null,
		"on": Bad, "Off": Bad, "YES": Bad, "no": Bad, "True": Bad, "FALSE": Bad,
		"010": Bad, "0x1F": Bad, "0o7": Bad, "0b1": Bad, "1_000": Bad, "1.0": Bad, "1.50": Bad, ".5": Bad, "1.": Bad, "+1": Bad, "-0": Bad,
		"1e3": Bad, "1E+3": Bad, "1:30": Bad, "190:20:30": Bad, ".inf": Bad, "-.INF": Bad, ".nan": Bad, "1,000": Bad,
		"2027-06-30": Bad, "2027-6-3": Bad, "2027-06-30T12:00:00Z": Bad,
	} {
		d := read(t, "a: "+text+"\n")
		require.Equal(t, want.String(), d.Root.Get("a").Kind.String(), text)
		require.Equal(t, want == Bad, d.Err() != nil, text)
	}
}

func TestNodesAreForgiving(t *testing.T) {
	var none *Node
	require.Nil(t, none.Get("a"))
	require.Nil(t, none.Key("a"))
	require.Nil(t, none.Items())
	require.Nil(t, none.Value())
	require.Empty(t, none.Str())
	require.Zero(t, none.Integer())
	none.Pairs(func(_, _ *Node) { t.Fatal("a pair of nothing") })
	d := read(t, "a: [1, {b: \"c\"}, on]\nd: 99999999999999999999\n")
	a := d.Root.Get("a")
	require.Len(t, a.Items(), 2, "what is Bad is passed over")
	require.Equal(t, 1, a.Items()[0].Integer())
	require.Equal(t, "c", a.Items()[1].Get("b").Str())
	require.Zero(t, d.Root.Get("d").Integer())
	require.Nil(t, a.Get("b"))
	require.Equal(t, Position{File: "f.yaml", Line: 1, Column: 12}, d.Position(a.Items()[1].Get("b")))
	require.Equal(t, Position{File: "f.yaml", Line: 1, Column: 9}, d.Position(a.Items()[1].Key("b")))
	require.Equal(t, "f.yaml:1:1", d.Position(none).String())
}

func TestValue(t *testing.T) {
	d := read(t, "a: {b: [1, 1.5, true, x, ~]}\nblock: |\n  two\n  lines\n")
	require.Equal(t, map[string]any{
		"a":     map[string]any{"b": []any{1.0, 1.5, true, "x", nil}},
		"block": "two\nlines\n",
	}, d.Root.Value())
	var v struct {
		Block string `json:"block"`
	}
	require.NoError(t, d.Root.Decode(&v))
	require.Equal(t, "two\nlines\n", v.Block)
}

func shape() *Shape {
	return &Shape{Fields: []Field{
		{Key: "name", Required: true, Shape: &Shape{Text: NewText(Text{What: "a word", Pattern: `^[a-z]+$`, Max: 5})}},
		{Key: "count", Shape: &Shape{Int: &Range{1, 9}}},
		{Key: "ratio", Shape: &Shape{Number: true}},
		{Key: "on", Shape: &Shape{Bool: true}},
		{Key: "kind", Shape: &Shape{Text: NewText(Text{What: "red or blue", Words: []string{"red", "blue"}})}},
		{Key: "tags", Shape: &Shape{Name: "tags", List: &Elements{Item: &Shape{Text: NewText(Text{What: "text"})}, Min: 1, Max: 3, Unique: true}}},
		{Key: "more", Shape: &Shape{Map: &Entries{Key: NewText(Text{What: "a word", Pattern: `^[a-z]+$`}), Value: &Shape{Text: NewText(Text{What: "text", Quoted: true})}, Min: 1}}},
	}}
}

func TestCheck(t *testing.T) {
	for title, c := range map[string]struct{ text, want string }{
		"good":          {"name: abc\ncount: 9\nratio: 2\n\"on\": true\nkind: red\ntags: [a, b]\nmore: {x: \"1\"}\n", ""},
		"missing":       {"count: 1\n", `1:1: the file has no "name" (add name:)`},
		"unknown":       {"name: a\nconut: 1\n", `2:1: unknown key "conut" in the file (did you mean "count"?)`},
		"far":           {"name: a\nzzzzz: 1\n", `2:1: unknown key "zzzzz" in the file (known are name, count, ratio, on, kind, tags, more)`},
		"pattern":       {"name: Abc\n", `1:7: name must be a word, not "Abc"`},
		"too-long":      {"name: abcdef\n", `1:7: name must be a word, not "abcdef"`},
		"number":        {"name: 12\n", `1:7: name must be a word, not a whole number (write "12" in quotes)`},
		"range":         {"name: a\ncount: 10\n", `2:8: count must be a whole number from 1 to 9`},
		"fraction":      {"name: a\ncount: 1.5\n", `2:8: count must be a whole number, not a number`},
		"huge":          {"name: a\nratio: 99999999999999999999\n", `2:8: ratio must be a whole number from -9007199254740992 to 9007199254740992`},
		"words":         {"name: a\nkind: rde\n", `2:7: kind must be red or blue, not "rde" (did you mean "red"?)`},
		"empty-list":    {"name: a\ntags: []\n", `2:7: tags is an empty list (remove the key, or add to it)`},
		"long-list":     {"name: a\ntags: [a, b, c, d]\n", `2:7: tags has more than 3 items`},
		"twice":         {"name: a\ntags: [a, a]\n", `2:11: it is in the list twice (remove one)`},
		"text-for-list": {"name: a\ntags: a\n", `2:7: tags must be a list, not text (write [a])`},
		"map-for-text":  {"name: a\ntags: [{a: b}]\n", `2:8: an item of tags must be text, not a map (write a text that has a colon in quotes)`},
		"empty-map":     {"name: a\nmore: {}\n", `2:7: more is empty (remove the key, or add to it)`},
		"bad-key":       {"name: a\nmore: {X: \"1\"}\n", `2:8: a key of more must be a word, not "X"`},
		"unquoted":      {"name: a\nmore: {x: a}\n", `2:11: x is written in quotes (write "a")`},
		"no-value":      {"name: a\nmore:\n", `2:1: more has no value (write {} for an empty one)`},
		"no-scalar":     {"name:\n", `1:1: name has no value (write one)`},
		"no-number":     {"name: a\ncount:\n", `2:1: count has no value (write one, or remove the key)`},
	} {
		t.Run(title, func(t *testing.T) {
			d := read(t, c.text)
			d.Check(shape())
			err := d.Err()
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.Error(t, err)
			first, _, _ := strings.Cut(err.Error(), "\n")
			require.Equal(t, "f.yaml:"+c.want, first)
		})
	}
}

// Nobody is told to remove what has to be there.
func TestWhatIsRequiredIsNotRemoved(t *testing.T) {
	word := &Shape{Text: NewText(Text{What: "text"})}
	for text, want := range map[string]string{
		"list: []\nmap: {a: b}\n": `1:7: list is an empty list (add to it)`,
		"list: [a]\nmap: {}\n":    `2:6: map is empty (add to it)`,
	} {
		d := read(t, text)
		d.Check(&Shape{Fields: []Field{
			{Key: "list", Required: true, Shape: &Shape{List: &Elements{Item: word, Min: 1}}},
			{Key: "map", Required: true, Shape: &Shape{Map: &Entries{Key: word.Text, Value: word, Min: 1}}},
		}})
		require.ErrorContains(t, d.Err(), "f.yaml:"+want)
		require.NotContains(t, d.Err().Error(), "remove")
	}
}

func TestProblemsAreSortedAndBounded(t *testing.T) {
	d := read(t, strings.Repeat("a: 1\n", 1)+strings.Repeat("b: on\n", 1))
	for line := 40; line > 1; line-- {
		d.Add(&Node{Kind: String, Line: line, Column: 1}, RuleMeaning, "wrong", "")
	}
	n := &Node{Kind: String, Line: 1, Column: 1}
	d.Add(n, RuleMeaning, "first", "")
	d.Add(n, RuleMeaning, "once only", "")
	ps, ok := d.Err().(Problems) //nolint:errorlint // documented
	require.True(t, ok)
	require.Len(t, ps, MaxProblems)
	require.Equal(t, "first", ps[0].Message)
	require.NotContains(t, ps.Error(), "once only")
	d.Add(nil, RuleMeaning, "of the file", "")
	require.Contains(t, d.Err().Error(), "f.yaml:1:1: of the file")
}

func TestExcerpt(t *testing.T) {
	long := strings.Repeat("x", 300)
	for _, column := range []int{1, 2, 74, 75, 76, 77, 200, 299, 300, 301} {
		text, caret := excerpt(long, column)
		require.LessOrEqual(t, len([]rune(text)), excerptWidth+2)
		require.Positive(t, caret)
		require.LessOrEqual(t, caret, len([]rune(text))+1)
	}
	for _, column := range []int{-1, 0, 302} {
		text, caret := excerpt(long, column)
		require.Empty(t, text)
		require.Zero(t, caret)
	}
	text, _ := excerpt("a\tb\x1b[2J\u202ec\r", 1)
	require.Equal(t, "a b?[2J?c", text)
}

func TestSuggest(t *testing.T) {
	known := []string{"commands", "connector", "connection", "to"}
	for s, want := range map[string]string{
		"comands": "commands", "command": "commands", "conector": "connector", "connecion": "connection", "ot": "to", "zebra": "", "x": "", "": "", "commands": "",
		strings.Repeat("c", 100): "",
	} {
		require.Equal(t, want, Suggest(s, known), s)
	}
	require.Equal(t, `did you mean "to"?`, Meant("ot", known))
}

func TestJSONSchema(t *testing.T) {
	var schema map[string]any
	require.NoError(t, json.Unmarshal(shape().JSONSchema("t"), &schema))
	require.Equal(t, "https://json-schema.org/draft/2020-12/schema", schema["$schema"])
	require.Contains(t, schema["$defs"], "tags")
	require.Equal(t, []any{"name"}, schema["required"])
	require.Equal(t, false, schema["additionalProperties"])
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"a: 1\n", "- [x, {y: z}]\n", "a: |\n  b\n", "? a\n", "a: &b *c\n", "---\n---\n", "'a': \"\\u202e\"\n", "a:\n - b\n -  c: d\n", "\ufeffa", "%x\n", "{a: [}"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := Parse("f", data, 1<<16)
		if err != nil {
			if d != nil || len(err.Error()) > 1<<14 {
				t.Fatal("not a bounded refusal")
			}
			return
		}
		d.Check(shape())
		if _, err := json.Marshal(d.Root.Value()); err != nil {
			t.Fatal(err)
		}
		if err := d.Err(); err != nil && len(err.Error()) > 1<<16 {
			t.Fatal("a refusal without bound")
		}
	})
}
