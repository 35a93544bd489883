//go:build linux

package presets

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/e2e/rig"
	"github.com/lendcli/lend/policy"
	"github.com/lendcli/lend/protocol/argv"
	"github.com/lendcli/lend/protocol/name"
)

func TestMain(m *testing.M) { rig.Main(m) }

// call is one line of a corpus of policy/preset.
type call struct {
	at, command, code string
	args, argv        []string
}

func corpus(t *testing.T, file string) (out []call) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("../../policy/preset/testdata", file))
	require.NoError(t, err)
	for i, line := range strings.Split(strings.TrimSpace(string(data)), "\n") {
		c := call{at: file + ":" + strconv.Itoa(i+1)}
		w := words(t, line)
		switch w[0] {
		case "accept":
			at := slices.Index(w, "=>")
			c.command, c.args, c.argv = w[1], w[2:at], w[at+1:]
		case "reject":
			c.code, c.command, c.args = w[1], w[2], w[3:]
		default:
			require.True(t, strings.HasPrefix(line, "#"), c.at)
			continue
		}
		out = append(out, c)
	}
	require.NotEmpty(t, out)
	return out
}

func words(t *testing.T, line string) (out []string) {
	t.Helper()
	for line = strings.TrimSpace(line); line != ""; line = strings.TrimSpace(line) {
		word, rest, _ := strings.Cut(line, " ")
		if line[0] == '"' {
			prefix, err := strconv.QuotedPrefix(line)
			require.NoError(t, err)
			rest = line[len(prefix):]
			word, err = strconv.Unquote(prefix)
			require.NoError(t, err)
		}
		out, line = append(out, word), rest
	}
	return out
}

// lent is a preset's CLI, lent by a gateway.
type lent struct {
	*rig.World
	key, lease string
	policy     *policy.Policy
}

// lend installs a program as the Connector key, writes the policy that the preset
// makes, changed by change, and serves it.
func lend(t *testing.T, program, key, version string, settings map[string]string, secret [2]string, change func(string) string, show ...string) *lent {
	t.Helper()
	l := &lent{World: rig.New(t, "", "1m"), key: key}
	dir := filepath.Join(t.TempDir(), "package")
	l.Lend(l.Owner, "connector", "new", "exec:"+program, "--key", key, "--version", version, "--out", dir)
	l.Lend(l.Owner, "connector", "add", dir)
	for n, v := range settings {
		l.Lend(l.Owner, "connector", "setting", "set", key, n, v)
	}
	if secret[0] != "" {
		cmd := l.Command(l.Owner, "connector", "secret", "set", key, "token", "--env", secret[0])
		cmd.Stdin = strings.NewReader(secret[1] + "\n")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	show = append([]string{"policy", "preset", "show"}, show...)
	show = append(show, "--to", "caller="+l.Lend(l.Caller, "id"), "--connector", key, "--json")
	var shown struct {
		Text     string
		Commands []string
	}
	require.NoError(t, json.Unmarshal([]byte(l.Lend(l.Owner, show...)), &shown))
	text := "policy: 1\nissuers: {owner: {id: " + l.Lend(l.Owner, "id", "--owner") + ", connectors: any}}\nlimits: {starts_per_minute: 60000, denials: 10000}\n" + change(shown.Text)
	file := filepath.Join(l.Owner, "policy.yaml")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	var err error
	l.policy, err = policy.Parse("policy.yaml", []byte(text))
	require.NoError(t, err)
	l.Serve("--listen", "/ip4/127.0.0.1/tcp/0")
	l.lease = filepath.Join(t.TempDir(), "caller.lease")
	issue := []string{"lease", "issue", "--to", "caller", "--local-addresses", "--life", "1h", "--operations", "100000", "--out", l.lease, key}
	l.Lend(l.Owner, append(issue, shown.Commands...)...)
	return l
}

// lendRecorder lends the fixture in the place of a CLI.
func lendRecorder(t *testing.T, key, version, starts string, record func(string) string, show []string) *lent {
	t.Helper()
	program := filepath.Join(rig.New(t, "", "1m").Bin, "fx")
	return lend(t, program, key, version, map[string]string{"FX_COUNT": starts}, [2]string{}, record, show...)
}

// lines counts the lines of a file that may not be there.
func lines(t *testing.T, file string) int {
	t.Helper()
	data, err := os.ReadFile(file)
	if !errors.Is(err, os.ErrNotExist) {
		require.NoError(t, err)
	}
	return bytes.Count(data, []byte("\n"))
}

func asItIs(s string) string { return s }

// run makes a call as the caller does.
func (l *lent) run(t *testing.T, c call) (status int, stdout, stderr string) {
	t.Helper()
	cmd := l.Command(l.Caller, append([]string{"run", "--wait", "0s", "--lease", l.lease, l.key, c.command}, c.args...)...)
	return finish(t, cmd)
}

func finish(t *testing.T, cmd *exec.Cmd) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode(), out.String(), errs.String()
	}
	require.NoError(t, err)
	return 0, out.String(), errs.String()
}

// alone runs a CLI without lend, with these variables only.
func alone(t *testing.T, program string, env []string, args ...string) (stdout string) {
	t.Helper()
	cmd := exec.CommandContext(context.Background(), program, args...)
	cmd.Env = append([]string{"HOME=" + t.TempDir(), "PATH=/dev/null"}, env...)
	_, out, errs := finish(t, cmd)
	return out + errs
}

// refused requires that each trick of a corpus gets its code, and starts and asks
// nothing.
func (l *lent) refused(t *testing.T, calls []call, asked func() int) {
	t.Helper()
	statuses := map[string]int{"ARGUMENT_REJECTED": 126, "COMMAND_UNKNOWN": 127}
	for _, c := range calls {
		if c.code == "" || slices.ContainsFunc(c.args, func(a string) bool { return strings.ContainsRune(a, 0) }) {
			continue // no operating system passes NUL
		}
		status, stdout, stderr := l.run(t, c)
		require.Equal(t, statuses[c.code], status, "%s: %s", c.at, stderr)
		require.Empty(t, stdout, c.at)
		require.Contains(t, stderr, c.code, c.at)
		require.Zero(t, asked(), c.at)
	}
}

// declared are the commands of the policy, by name.
func (l *lent) declared(t *testing.T) map[string]argv.Command {
	t.Helper()
	key, err := name.ParseConnectorKey(l.key)
	require.NoError(t, err)
	out := map[string]argv.Command{}
	for n, d := range l.policy.Content().Declared[key] {
		out[n.String()] = d.Command
	}
	require.NotEmpty(t, out)
	return out
}

// flags requires that the help of each command knows each flag of the preset.
func flags(t *testing.T, commands map[string]argv.Command, help func(arguments []string) string) {
	t.Helper()
	for n, c := range commands {
		var fixed []string
		for _, a := range c.Arguments {
			if strings.HasPrefix(a, "-") {
				break
			}
			fixed = append(fixed, a)
		}
		text := help(fixed)
		for _, p := range c.Parameters {
			if p.Flag == nil {
				continue
			}
			require.Regexp(t, `(?m)^ +(-[A-Za-z], )?`+regexp.QuoteMeta(p.Flag.Name)+`[ \[<]`, text, n)
			for _, a := range p.Flag.Aliases {
				require.Regexp(t, `(?m)^ +`+regexp.QuoteMeta(a)+`, `+regexp.QuoteMeta(p.Flag.Name)+` `, text, n)
			}
		}
	}
}
