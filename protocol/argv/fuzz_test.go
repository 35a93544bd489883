package argv_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/protocol/argv"
)

// fuzzed are the grammars that fuzzing speaks to: every command of the corpus and
// a few that have what those lack.
func fuzzed(f *testing.F) ([]argv.Command, []*argv.Grammar, []int) {
	f.Helper()
	var commands []argv.Command
	var grammars []*argv.Grammar
	var prefixes []int
	add := func(c argv.Command, contract argv.Contract) {
		g, err := c.Compile(contract)
		require.NoError(f, err)
		commands, grammars, prefixes = append(commands, c), append(grammars, g), append(prefixes, len(contract.Arguments)+len(c.Arguments))
	}
	corpus := readCorpus(f)
	for _, file := range []string{"gh.txtar", "git.txtar", "lark-cli.txtar", "stripe.txtar"} {
		for _, c := range corpus[file].contract.Commands {
			add(c, corpus[file].contract)
		}
	}
	contract := argv.Contract{Command: "tool", Environment: []string{"ACME_A"}}
	for _, doc := range []string{
		objectDoc,
		`{end_of_options: true, parameters: {a: {position: 1, type: number, max_items: 3}, b: {flag: -b, free_text: true, min_length: 0}}}`,
		`{parameters: {a: {flag: -limit, render: equals, enum: [-x, "@y", "", "-"]}, p: {flag: --p, kind: path, separator: "/", max_items: 3}}}`,
	} {
		add(declare(f, doc), contract)
	}
	return commands, grammars, prefixes
}

// FuzzParse: arguments are separated by newlines. Nothing panics; what is
// accepted is bounded and reads as itself; a refusal shows nothing unsafe.
func FuzzParse(f *testing.F) {
	commands, grammars, prefixes := fuzzed(f)
	for _, cli := range readCorpus(f) {
		for _, c := range cli.cases {
			for i := range commands {
				if joined := strings.Join(c.args, "\n"); commands[i].Name.String() == c.command && len(joined) < 4096 {
					f.Add(uint8(i), joined)
				}
			}
		}
	}
	for _, s := range tricky {
		f.Add(uint8(len(commands)-1), s)
	}
	f.Fuzz(func(t *testing.T, n uint8, text string) {
		i := int(n) % len(commands)
		var args []string
		if text != "" {
			args = strings.Split(text, "\n")
		}
		call, err := grammars[i].Parse(args)
		if err != nil {
			require.Zero(t, call)
			require.NotEmpty(t, faultOf(t, err))
			requireSafe(t, err.Error(), text)
			return
		}
		require.LessOrEqual(t, len(call.Arguments), argv.MaxArguments)
		require.LessOrEqual(t, len(strings.Join(call.Arguments, "\x00"))+1, argv.MaxTotal)
		again, err := grammars[i].Parse(spell(call, commands[i], prefixes[i]))
		require.NoError(t, err, "%q", call.Arguments)
		require.Equal(t, call, again)
		object := objectOf(t, call, commands[i])
		if len(object) > argv.MaxObject {
			return
		}
		same, err := grammars[i].FromObject(object)
		if faultOf(t, err) == argv.FaultMissing && call.Stdin != nil {
			return // an object says its standard input, argv does not
		}
		require.NoError(t, err, "%s", object)
		require.Equal(t, call, same)
	})
}

// FuzzFromObject: what an object says a command line can say.
func FuzzFromObject(f *testing.F) {
	commands, grammars, prefixes := fuzzed(f)
	f.Add(uint8(len(commands)-3), `{"who":"ann","repo":"a/b","tag":["a","b"],"rest":["x"],"limit":5,"web":false,"body":"x"}`)
	f.Add(uint8(len(commands)-2), `{"a":[-1,0.50],"b":""}`)
	f.Add(uint8(0), `{"id":"ch_1","a":1e3}`)
	f.Add(uint8(0), `{"a":{"a":1,"a":"\ud800"}}`)
	f.Fuzz(func(t *testing.T, n uint8, object string) {
		i := int(n) % len(commands)
		call, err := grammars[i].FromObject([]byte(object))
		if err != nil {
			require.Zero(t, call)
			requireSafe(t, err.Error(), object)
			return
		}
		require.True(t, json.Valid([]byte(object)))
		same, err := grammars[i].Parse(spell(call, commands[i], prefixes[i]))
		require.NoError(t, err, "%q", call.Arguments)
		call.Input = nil
		require.Equal(t, call, same)
	})
}

// FuzzDeclaration: what a file declares either is refused with a path or makes a
// grammar that describes itself.
func FuzzDeclaration(f *testing.F) {
	f.Add(`{"arguments":["x"],"rest":{"max_items":1,"pattern":"a"},"parameters":{"a":{"flag":"--a","type":"number","enum":[1,2.5]}}}`)
	f.Add(`{"parameters":{"a":{"position":1,"max_items":3,"pattern":"(a|b)*c"},"b":{"stdin":{"max_bytes":1}},"c":{"env":"ACME_A","const":"x"}}}`)
	f.Add(`{"timeout":"1e9h","parameters":{"a":{"flag":"-a","repeat":99999999999}}}`)
	f.Fuzz(func(t *testing.T, doc string) {
		var d argv.Declaration
		if json.Unmarshal([]byte(doc), &d) != nil {
			return
		}
		c, err := d.Command(mustCommand(t, "test"))
		if err != nil {
			require.NotEmpty(t, faultsOf(t, err))
			return
		}
		g, err := c.Compile(argv.Contract{Command: "tool", Environment: []string{"ACME_A"}})
		if err != nil {
			require.NotEmpty(t, faultsOf(t, err))
			return
		}
		require.NotNil(t, compileSchema(t, g))
		require.NotEmpty(t, canonical(t, c.Semantics()))
	})
}
