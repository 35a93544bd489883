package argv_test

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/protocol/argv"
	"github.com/lendcli/lend/protocol/name"
)

// corpusCase is one line of testdata/corpus (see the README there).
type corpusCase struct {
	at, command string
	args, want  []string
	fault       string // "" means accepted
}

// corpusCLI is one file of testdata/corpus.
type corpusCLI struct {
	contract argv.Contract
	cases    []corpusCase
}

func readCorpus(tb testing.TB) map[string]corpusCLI {
	tb.Helper()
	files, err := filepath.Glob("testdata/corpus/*.txtar")
	require.NoError(tb, err)
	require.NotEmpty(tb, files, "the corpus is gone")
	out := map[string]corpusCLI{}
	for _, f := range files {
		archive, err := txtar.ParseFile(f)
		require.NoError(tb, err)
		require.Len(tb, archive.Files, 2, f)
		require.Equal(tb, "contract.yaml", archive.Files[0].Name, f)
		require.Equal(tb, "lines", archive.Files[1].Name, f)
		cli := corpusCLI{contract: readContract(tb, archive.Files[0].Data)}
		for i, line := range strings.Split(strings.TrimSpace(string(archive.Files[1].Data)), "\n") {
			if !strings.HasPrefix(line, "#") {
				cli.cases = append(cli.cases, readCase(tb, filepath.Base(f)+":"+strconv.Itoa(i+1), line))
			}
		}
		require.NotEmpty(tb, cli.cases, f)
		out[filepath.Base(f)] = cli
	}
	return out
}

func readContract(tb testing.TB, data []byte) argv.Contract {
	tb.Helper()
	var file struct {
		Command     string                      `yaml:"command"`
		Arguments   []string                    `yaml:"arguments"`
		Environment []string                    `yaml:"environment"`
		Commands    map[string]argv.Declaration `yaml:"commands"`
	}
	require.NoError(tb, yaml.UnmarshalWithOptions(data, &file, yaml.Strict()))
	c := argv.Contract{Command: file.Command, Arguments: file.Arguments, Environment: file.Environment}
	for key, d := range file.Commands {
		command, err := d.Command(mustCommand(tb, key))
		require.NoError(tb, err, key)
		c.Commands = append(c.Commands, command)
	}
	slices.SortFunc(c.Commands, func(a, b argv.Command) int { return strings.Compare(a.Name.String(), b.Name.String()) })
	require.NoError(tb, c.Validate())
	return c
}

func readCase(tb testing.TB, at, line string) corpusCase {
	tb.Helper()
	words := readWords(tb, at, line)
	verb, words := words[0], words[1:]
	c := corpusCase{at: at}
	switch verb {
	case "accept":
		i := slices.Index(words, "=>")
		require.Positive(tb, i, at)
		c.command, c.args, c.want = words[0], words[1:i], words[i+1:]
		require.NotContains(tb, c.want, "=>", at)
	case "reject":
		require.GreaterOrEqual(tb, len(words), 2, at)
		c.fault, c.command, c.args = words[0], words[1], words[2:]
		require.True(tb, c.fault == "command" || slices.Contains(allFaults(), argv.Fault(c.fault)), "%s: no fault %s", at, c.fault)
	default:
		require.Fail(tb, "no such verb", "%s: %s", at, verb)
	}
	return c
}

func readWords(tb testing.TB, at, line string) []string {
	tb.Helper()
	var out []string
	for line = strings.TrimSpace(line); line != ""; line = strings.TrimSpace(line) {
		word, rest, _ := strings.Cut(line, " ")
		quoted := strings.HasPrefix(line, `"`)
		if quoted {
			prefix, err := strconv.QuotedPrefix(line)
			require.NoError(tb, err, at)
			rest = line[len(prefix):]
			word, err = strconv.Unquote(prefix)
			require.NoError(tb, err, at)
		}
		line = rest
		before, macro, ok := strings.Cut(word, "<")
		macro, after, closed := strings.Cut(macro, ">")
		parts := strings.SplitN(macro, ":", 3)
		if !ok || !closed || len(parts) != 3 || parts[0] != "bytes" && parts[0] != "args" {
			out = append(out, word)
			continue
		}
		n, err := strconv.Atoi(parts[1])
		require.NoError(tb, err, at)
		if parts[0] == "bytes" {
			out = append(out, before+strings.Repeat(parts[2], n)+after)
			continue
		}
		require.True(tb, !quoted && before == "" && after == "", at)
		out = append(out, slices.Repeat([]string{parts[2]}, n)...)
	}
	return out
}

func TestCorpus(t *testing.T) {
	for file, cli := range readCorpus(t) {
		t.Run(file, func(t *testing.T) {
			used := map[string]bool{}
			for _, c := range cli.cases {
				runCase(t, cli.contract, c)
				if c.fault == "" {
					used[c.command] = true
				}
			}
			for _, c := range cli.contract.Commands {
				require.True(t, used[c.Name.String()], "no case accepts %s", c.Name)
			}
		})
	}
}

func runCase(t *testing.T, contract argv.Contract, c corpusCase) {
	t.Helper()
	command, ok := contract.Lookup(mustCommand(t, c.command))
	require.Equal(t, c.fault != "command", ok, c.at)
	if !ok {
		return
	}
	g, err := command.Compile(contract)
	require.NoError(t, err, c.at)
	call, err := g.Parse(c.args)
	if c.fault == "" {
		require.NoError(t, err, c.at)
		require.Equal(t, c.want, call.Arguments, c.at)
		return
	}
	var fault *argv.Error
	require.ErrorAs(t, err, &fault, "%s: accepted as %q", c.at, call.Arguments)
	require.Equal(t, c.fault, string(fault.Kind), "%s: %v", c.at, err)
	require.Zero(t, call, c.at)
	require.Less(t, fault.Index, max(len(c.args), 1)+1, c.at)
	requireSafe(t, err.Error(), c.at)
}

// requireSafe checks a message that may reach a terminal or a log.
func requireSafe(tb testing.TB, msg, at string) {
	tb.Helper()
	require.LessOrEqual(tb, len(msg), 4096, at)
	require.Equal(tb, -1, strings.IndexFunc(msg, func(r rune) bool { return r < ' ' || r >= 0x7f && r != '…' }), "%s: %q", at, msg)
}

// TestCorpusCoversFaults keeps the corpus from losing a kind of trick.
func TestCorpusCoversFaults(t *testing.T) {
	seen := map[string]bool{}
	for _, cli := range readCorpus(t) {
		for _, c := range cli.cases {
			seen[c.fault] = true
		}
	}
	for _, f := range allFaults() {
		// a total needs more bytes than a line should have, an object is no argv
		if f != argv.FaultTooLarge && f != argv.FaultObject {
			require.True(t, seen[string(f)], "no case is refused for %s", f)
		}
	}
}

func allFaults() []argv.Fault {
	return []argv.Fault{
		argv.FaultFlag, argv.FaultCluster, argv.FaultRepeat, argv.FaultExtra, argv.FaultMissing, argv.FaultOption, argv.FaultDash,
		argv.FaultFile, argv.FaultControl, argv.FaultEncoding, argv.FaultEmpty, argv.FaultNumber, argv.FaultValue, argv.FaultPath,
		argv.FaultItems, argv.FaultTooMany, argv.FaultTooLong, argv.FaultTooLarge, argv.FaultObject,
	}
}

func mustCommand(tb testing.TB, s string) name.Command {
	tb.Helper()
	n, err := name.ParseCommand(s)
	require.NoError(tb, err)
	return n
}

func mustParameter(tb testing.TB, s string) name.Parameter {
	tb.Helper()
	n, err := name.ParseParameter(s)
	require.NoError(tb, err)
	return n
}

// faultOf returns the kind of err, "" for nil.
func faultOf(tb testing.TB, err error) argv.Fault {
	tb.Helper()
	if err == nil {
		return ""
	}
	var fault *argv.Error
	require.ErrorAs(tb, err, &fault, "%T: %v", err, err)
	return fault.Kind
}
