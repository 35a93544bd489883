package surface

import (
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/policy/file"
	"github.com/lendcli/lend/protocol/argv"
	"github.com/lendcli/lend/protocol/name"
)

// TestSameStartIsTheSameInEverything: what differs in anything that a start depends on
// starts another thing.
func TestSameStartIsTheSameInEverything(t *testing.T) {
	t.Parallel()
	s, _ := make2(t)
	same := *s
	require.True(t, s.SameStart(&same))
	must := func(err error) { require.NoError(t, err) }
	var key name.ConnectorKey
	var version name.Version
	var command name.Command
	var connection name.ConnectionID
	var workspace name.Label
	must(key.UnmarshalText([]byte("another")))
	must(version.UnmarshalText([]byte("99")))
	must(command.UnmarshalText([]byte("another")))
	must(connection.UnmarshalText([]byte("another")))
	must(workspace.UnmarshalText([]byte("another")))
	for title, change := range map[string]func(*Surface){
		"connector":   func(o *Surface) { o.form.Connector = key },
		"version":     func(o *Surface) { o.form.Version = version },
		"command":     func(o *Surface) { o.form.Command.Name = command },
		"contract":    func(o *Surface) { o.form.ContractHash = "sha256:" + strings.Repeat("e", 64) },
		"connection":  func(o *Surface) { o.form.Connection = connection },
		"workspace":   func(o *Surface) { o.form.Workspace = workspace },
		"place":       func(o *Surface) { o.form.Place += "0" },
		"program":     func(o *Surface) { o.form.CLI += "x" },
		"prefix":      func(o *Surface) { o.form.Prefix = append([]string{"--x"}, o.form.Prefix...) },
		"environment": func(o *Surface) { o.form.Environment = append([]string{"X"}, o.form.Environment...) },
	} {
		other := *s
		change(&other)
		require.False(t, s.SameStart(&other), title)
		require.False(t, other.SameStart(s), title)
	}
}

// TestSurfaceIsBounded: one that is canonical, and too long.
func TestSurfaceIsBounded(t *testing.T) {
	t.Parallel()
	s, _ := make2(t)
	long := *s
	long.form.Rule = strings.Repeat("x", MaxSize)
	_, err := Parse(long.Marshal())
	require.ErrorContains(t, err, "too large")
	long.form.Rule = strings.Repeat("x", 100)
	_, err = Parse(long.Marshal())
	require.NoError(t, err)
}

// TestParseSaysWhatIsWrong: what is no surface is not reported as one that is written
// otherwise.
func TestParseSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	s, _ := make2(t)
	good := string(s.Marshal())
	without := func(part string) []byte {
		require.Equal(t, 1, strings.Count(good, part), "%s in %s", part, good)
		return []byte(strings.Replace(good, part, "", 1))
	}
	_, err := Parse([]byte(good[:len(good)-1]))
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	_, err = Parse([]byte(`{"surface":"1"}`))
	var typed *json.UnmarshalTypeError
	require.ErrorAs(t, err, &typed)
	_, err = Parse([]byte(good + "{}"))
	require.ErrorContains(t, err, "data after it")
	_, err = Parse([]byte(good + "]"))
	require.ErrorContains(t, err, "data after it")
	for _, part := range []string{`"connector":"tool",`, `,"version":"1"`, `"contract_hash":"sha256:x",`, `"name":"all",`} {
		_, err = Parse(without(part))
		require.ErrorContains(t, err, "not a surface of version 1", part)
	}
	_, err = Parse([]byte(" " + good))
	require.ErrorContains(t, err, "not in canonical form")
}

// TestNoCommandIsUndefined: of a manifest that declares others.
func TestNoCommandIsUndefined(t *testing.T) {
	t.Parallel()
	f, err := file.Parse("p", []byte("policy: 1\n"))
	require.NoError(t, err)
	key, err := name.ParseConnectorKey("tool")
	require.NoError(t, err)
	declared, err := name.ParseCommand("get")
	require.NoError(t, err)
	other, err := name.ParseCommand("delete")
	require.NoError(t, err)
	contract := argv.Contract{Command: "tool", Commands: []argv.Command{{Name: declared}}}
	c, err := Base(f, key, declared, contract)
	require.NoError(t, err)
	require.Equal(t, declared, c.Name)
	_, err = Base(f, key, other, contract)
	require.ErrorIs(t, err, ErrUndefined)
}

// TestContractThatDoesNotFit: a variable that the Connector lets no parameter set.
func TestContractThatDoesNotFit(t *testing.T) {
	t.Parallel()
	f, err := file.Parse("p", []byte(policy))
	require.NoError(t, err)
	r := f.Rules[0]
	s, err := Make(f, r, r.Commands[0], r.Versions[0], argv.Contract{Command: "tool"}, "sha256:x")
	var fault *argv.DeclarationError
	require.ErrorAs(t, err, &fault)
	require.Equal(t, "parameters.title.env", fault.Path)
	require.Nil(t, s)
}

// TestLimitsAreWithinTheirs: each by itself.
func TestLimitsAreWithinTheirs(t *testing.T) {
	t.Parallel()
	day := 24 * time.Hour
	good := limitsForm{
		Stdout: 1, Stderr: file.Unlimited, RunSeconds: int64(day / time.Second), DetachedMs: day.Milliseconds(),
		Arguments: argv.MaxArguments, ArgumentBytes: argv.MaxTotal,
	}
	require.True(t, good.valid())
	for title, change := range map[string]func(*limitsForm){
		"stdin":             func(l *limitsForm) { l.Stdin = -1 },
		"stdout":            func(l *limitsForm) { l.Stdout = 0 },
		"stderr":            func(l *limitsForm) { l.Stderr = 0 },
		"run-0":             func(l *limitsForm) { l.RunSeconds = 0 },
		"run":               func(l *limitsForm) { l.RunSeconds++ },
		"detached-negative": func(l *limitsForm) { l.DetachedMs = -2 },
		"detached":          func(l *limitsForm) { l.DetachedMs++ },
		"processes":         func(l *limitsForm) { l.Processes = -1 },
		"memory":            func(l *limitsForm) { l.Memory = -1 },
		"arguments-0":       func(l *limitsForm) { l.Arguments = 0 },
		"arguments":         func(l *limitsForm) { l.Arguments++ },
		"bytes-0":           func(l *limitsForm) { l.ArgumentBytes = 0 },
		"bytes":             func(l *limitsForm) { l.ArgumentBytes++ },
	} {
		l := good
		change(&l)
		require.False(t, l.valid(), title)
	}
}
