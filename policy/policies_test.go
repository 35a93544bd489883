package policy

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/policy/strict"
	"github.com/lendcli/lend/protocol/argv"
	"github.com/lendcli/lend/protocol/name"
)

const corpusDir = "../protocol/argv/testdata/corpus"

// corpusContracts has the corpus of the grammar as manifests of Connectors.
func corpusContracts(t testing.TB) fakeContracts {
	t.Helper()
	out := fakeContracts{}
	for file, ids := range map[string][]string{
		"gh": {"github@2.96.0"}, "git": {"git@2.53.0"},
		"stripe": {"stripe@1.21.8", "stripe@1.21.8#test-account"}, "lark-cli": {"lark@1.0.0"},
	} {
		c := corpusContract(t, archives(t, corpusDir)[file]["contract.yaml"])
		for _, id := range ids {
			out[id] = c
		}
	}
	out["tool@1.0#work"] = argv.Contract{Command: "tool", Environment: []string{"TITLE"}}
	out["tool@1.1#work"] = out["tool@1.0#work"]
	return out
}

func corpusContract(t testing.TB, data []byte) argv.Contract {
	t.Helper()
	doc, err := strict.Parse("contract.yaml", data, MaxFile)
	require.NoError(t, err)
	require.NoError(t, doc.Err())
	var form contractForm
	require.NoError(t, doc.Root.Decode(&form))
	return form.contract(t)
}

func policyFiles(t testing.TB) map[string][]byte {
	t.Helper()
	paths, err := filepath.Glob("testdata/policies/*.yaml")
	require.NoError(t, err)
	require.Greater(t, len(paths), 5)
	out := map[string][]byte{}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		out[strings.TrimSuffix(filepath.Base(path), ".yaml")] = data
	}
	return out
}

// The policies for real CLIs pass their own tests, have no error, and say what
// their golden files say.
func TestPolicies(t *testing.T) {
	source := corpusContracts(t)
	for title, data := range policyFiles(t) {
		t.Run(title, func(t *testing.T) {
			p, err := Parse(title+".yaml", data)
			require.NoError(t, err)
			for _, r := range p.RunTests(source) {
				require.True(t, r.Passed, "%s: %s: %s", r.Position, r.Name, r.Message)
			}
			var b strings.Builder
			for _, f := range p.Lint(source) {
				require.NotEqual(t, LevelError, f.Level, f.String())
				b.WriteString(f.String() + "\n")
			}
			b.WriteString("\n" + strings.Join(p.Access(source), "\n") + "\n")
			golden(t, "testdata/policies/"+title+".golden", b.String())
		})
	}
}

// The order of rules, of commands and of names means nothing.
func TestOrderMeansNothing(t *testing.T) {
	source := corpusContracts(t)
	for title, data := range policyFiles(t) {
		p, err := Parse("p", data)
		require.NoError(t, err)
		before, rules, _ := bytes.Cut(data, []byte("\nallow:\n"))
		rules, tests, found := bytes.Cut(rules, []byte("\ntests:\n"))
		if !found {
			continue
		}
		parts := strings.Split("\n"+string(rules), "\n  - ")[1:]
		slices.Reverse(parts)
		text := string(before) + "\nallow:\n  - " + strings.Join(parts, "\n  - ") + "\ntests:\n" + string(tests)
		q, err := Parse("p", []byte(text))
		require.NoError(t, err, title)
		require.Equal(t, p.Access(source), q.Access(source))
		for i := range p.file.Tests {
			a, b := p.Decide(requestOf(p.file.Tests[i]), source), q.Decide(requestOf(q.file.Tests[i]), source)
			require.Equal(t, a.Allowed, b.Allowed)
			require.Equal(t, a.Reason, b.Reason)
			require.Equal(t, a.Rule.Name, b.Rule.Name)
			require.Equal(t, a.Call, b.Call)
		}
	}
}

// Every line of the grammar's corpus gets the same answer through a policy that
// narrows nothing, whether the manifest or the policy declares the commands.
func TestCorpusThroughPolicy(t *testing.T) {
	for title, files := range archives(t, corpusDir) {
		contract := corpusContract(t, files["contract.yaml"])
		bare := contract
		bare.Commands = nil
		var rule, declarations strings.Builder
		rule.WriteString("allow:\n  - name: r\n    to: [maria-laptop]\n    connector: tool\n    version: \"1\"\n    workspace: w\n    commands:\n")
		for _, c := range contract.Commands {
			rule.WriteString("      " + c.Name.String() + ": {}\n")
		}
		_, commands, found := strings.Cut(string(files["contract.yaml"]), "\ncommands:\n")
		require.True(t, found)
		declarations.WriteString("commands:\n  tool:\n  " + strings.ReplaceAll(strings.TrimRight(commands, "\n"), "\n", "\n  ") + "\n")
		start := head + "workspaces: {w: {path: /w}}\n"
		for kind, p := range map[string]*Policy{
			"manifest": mustParse(t, start+rule.String()), "policy": mustParse(t, start+declarations.String()+rule.String()),
		} {
			source := fakeContracts{"tool@1": contract}
			if kind == "policy" {
				source = fakeContracts{"tool@1": bare}
			}
			t.Run(title+"-"+kind, func(t *testing.T) { runCorpus(t, p, source, string(files["lines"])) })
		}
	}
}

func runCorpus(t *testing.T, p *Policy, source Contracts, lines string) {
	t.Helper()
	n := 0
	for _, line := range strings.Split(lines, "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		n++
		words := splitWords(t, line)
		r := Request{
			Issuer: must(parsePeer(ownerID)), Peer: must(parsePeer(mariaID)), Now: someDay,
			Connector: must(name.ParseConnectorKey("tool")), Version: must(name.ParseVersion("1")),
		}
		if words[0] == "accept" {
			at := slices.Index(words, "=>")
			r.Command, r.Arguments = must(name.ParseCommand(words[1])), words[2:at]
			d := p.Decide(r, source)
			if d.Reason == ReasonStdin {
				r.Stdin = true
				d = p.Decide(r, source)
			}
			require.True(t, d.Allowed, "%s: %s %v", line, d.Reason, d.Err)
			require.Equal(t, words[at+1:], d.Call.Arguments, line)
			continue
		}
		command, err := name.ParseCommand(words[2])
		if err != nil {
			continue
		}
		r.Command, r.Arguments = command, words[3:]
		d := p.Decide(r, source)
		require.False(t, d.Allowed, line)
		want := ReasonArgument
		if words[1] == "command" {
			want = ReasonCommand
		}
		require.Equal(t, want, d.Reason, line)
	}
	require.Greater(t, n, 20)
}

// splitWords reads a line as the README of the corpus says.
func splitWords(t *testing.T, line string) (out []string) {
	t.Helper()
	for line = strings.TrimSpace(line); line != ""; line = strings.TrimSpace(line) {
		word, rest, _ := strings.Cut(line, " ")
		if strings.HasPrefix(line, `"`) {
			prefix, err := strconv.QuotedPrefix(line)
			require.NoError(t, err, line)
			rest, word = line[len(prefix):], must(strconv.Unquote(prefix))
		}
		line = rest
		before, macro, ok := strings.Cut(word, "<")
		macro, after, closed := strings.Cut(macro, ">")
		parts := strings.SplitN(macro, ":", 3)
		switch {
		case !ok || !closed || len(parts) != 3:
			out = append(out, word)
		case parts[0] == "bytes":
			out = append(out, before+strings.Repeat(parts[2], must(strconv.Atoi(parts[1])))+after)
		case parts[0] == "args":
			out = append(out, slices.Repeat([]string{parts[2]}, must(strconv.Atoi(parts[1])))...)
		default:
			out = append(out, word)
		}
	}
	return out
}

func TestExampleOfTheDocs(t *testing.T) {
	doc, err := os.ReadFile("../docs/policy.md")
	require.NoError(t, err)
	_, example, found := strings.Cut(string(doc), "```yaml\n")
	require.True(t, found)
	example, _, found = strings.Cut(example, "```")
	require.True(t, found)
	p := mustParse(t, example)
	for _, r := range p.RunTests(corpusContracts(t)) {
		require.True(t, r.Passed, "%s: %s", r.Name, r.Message)
	}
	for _, sentence := range p.Access(corpusContracts(t)) {
		if strings.Contains(sentence, "issue.list") {
			require.Contains(t, string(doc), sentence)
		}
	}
}

// A test of the file that does not hold says what happened instead.
func TestFailingTests(t *testing.T) {
	p := mustParse(t, head+`commands: {tool: {x: {arguments: [x], parameters: {a: {flag: --a, enum: [b, "c d"]}}}}}
allow:
  - {name: r, to: [maria-laptop], connector: tool, version: "1", commands: {x: {}}}
  - {name: s, to: [build-agent], connector: tool, version: "1", commands: {x: {}}}
tests:
  - {name: denied, peer: maria-laptop, run: [tool, x, --b], want: allow}
  - {name: denied without more, peer: maria-laptop, run: [tool, y], want: allow}
  - {name: allowed, peer: maria-laptop, run: [tool, x], want: deny}
  - {name: another rule, peer: maria-laptop, run: [tool, x], want: allow, rule: s}
  - {name: another argv, peer: maria-laptop, run: [tool, x, --a, c d], want: allow, argv: [x, y]}
  - {name: another code, peer: maria-laptop, run: [tool, y], want: deny, code: ARGUMENT_REJECTED}
  - {name: holds, peer: maria-laptop, run: [tool, x, --a=b], want: allow, argv: [x, --a=b], rule: r}
  - {name: holds too, peer: maria-laptop, run: [tool, z], want: deny}
`)
	want := []string{
		"denied: ARGUMENT_REJECTED (argument-refused): ", "denied: COMMAND_UNKNOWN (command-not-allowed)", `allowed by rule "r"`,
		`allowed by rule "r", not by "s"`, `the canonical arguments are ["x", "--a=c d"]`, "denied, but with COMMAND_UNKNOWN", "", "",
	}
	for i, r := range p.RunTests(fakeContracts{"tool@1": {Command: "tool"}}) {
		require.Equal(t, want[i] == "", r.Passed, r.Name)
		require.Equal(t, 12+i, r.Position.Line)
		if want[i] == "" {
			require.Empty(t, r.Message)
			continue
		}
		require.True(t, strings.HasPrefix(r.Message, want[i]), "%s: %s", r.Name, r.Message)
	}
	e := p.Explain(nil, requestOf(p.file.Tests[4]), fakeContracts{"tool@1": {Command: "tool"}})
	require.Contains(t, e.String(), `runs: x "--a=c d"`)
	require.Equal(t, string(Schema()), string(must(os.ReadFile("testdata/policy.schema.json"))))
}
