package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/gateway/client"
	"github.com/lendcli/lend/localhost/process"
	"github.com/lendcli/lend/protocol"
)

func TestMain(m *testing.M) {
	process.Main() // the demonstration's supervisors are this program
	if len(os.Args) > 2 && os.Args[1] == "demo" && os.Args[2] == "connector" {
		main()
	}
	os.Exit(m.Run())
}

// lend runs one command line and returns what it said.
func lend(t *testing.T, dir string, args ...string) (code int, out, errs string) {
	t.Helper()
	var o, e bytes.Buffer
	code = run(context.Background(), newApp(append(args, "--dir", dir), strings.NewReader(""), &o, &e))
	return code, o.String(), e.String()
}

func TestDemo(t *testing.T) {
	var out, errs bytes.Buffer
	code := run(t.Context(), newApp([]string{"demo", "--json"}, strings.NewReader(""), &out, &errs))
	require.Zero(t, code, "%s", errs.String())
	var r demoReport
	require.NoError(t, json.Unmarshal(out.Bytes(), &r))
	require.True(t, r.OK)
	require.Len(t, r.Steps, 7)
	require.Equal(t, 3, r.Started, "only what is lent was started")
}

func TestUsageErrorsExitWithTwo(t *testing.T) {
	dir := t.TempDir()
	cases := map[string]struct {
		args []string
		want string
	}{
		"unknown-command":     {[]string{"lease", "frobnicate"}, "unknown command"},
		"unknown-flag":        {[]string{"id", "--frobnicate"}, "unknown flag"},
		"too-many-arguments":  {[]string{"init", "x"}, "init"},
		"no-identity":         {[]string{"id"}, "lend init"},
		"no-policy":           {[]string{"policy", "check"}, "lend init"},
		"lease-without-to":    {[]string{"lease", "issue", "github", "issue.list"}, "--to is missing"},
		"explain-without-who": {[]string{"policy", "explain", "github", "issue.list"}, "--peer is missing"},
		"bad-listen":          {[]string{"serve", "--log", "loud"}, "--log"},
	}
	for title, c := range cases {
		t.Run(title, func(t *testing.T) {
			code, out, errs := lend(t, dir, c.args...)
			require.Equal(t, 2, code, "%s", errs)
			require.Empty(t, out)
			require.Contains(t, errs, "lend: error: ")
			require.Contains(t, errs, c.want)
		})
	}
}

func TestErrorsAreJSONIfAskedFor(t *testing.T) {
	code, out, errs := lend(t, t.TempDir(), "id", "--json")
	require.Equal(t, 2, code)
	var e struct {
		SchemaVersion int
		Error, Hint   string
	}
	require.NoError(t, json.Unmarshal([]byte(out), &e))
	require.Equal(t, 1, e.SchemaVersion)
	require.NotEmpty(t, e.Error)
	require.Equal(t, "lend init", e.Hint)
	require.Contains(t, errs, "lend: hint: lend init")
}

func TestInitIsIdempotent(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	code, first, errs := lend(t, dir, "init", "--json")
	require.Zero(t, code, "%s", errs)
	var a, b initialised
	require.NoError(t, json.Unmarshal([]byte(first), &a))
	require.True(t, a.Created)
	require.NotEqual(t, a.PeerID, a.Owner, "the owner's key is another than the machine's")
	require.NoError(t, os.WriteFile(a.Policy, []byte("policy: 1\n"), 0o600))
	code, second, _ := lend(t, dir, "init", "--json")
	require.Zero(t, code)
	require.NoError(t, json.Unmarshal([]byte(second), &b))
	require.False(t, b.Created)
	b.Created = true
	require.Equal(t, a, b)
	policy, err := os.ReadFile(a.Policy)
	require.NoError(t, err)
	require.Equal(t, "policy: 1\n", string(policy), "what the owner wrote stays")
	for _, f := range []string{"identity.pem", "owner.pem"} {
		info, err := os.Stat(filepath.Join(dir, f))
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	}
}

func TestFirstPolicyIsServableAndSharesNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	code, _, errs := lend(t, dir, "init")
	require.Zero(t, code, "%s", errs)
	code, out, errs := lend(t, dir, "policy", "check", "--json")
	require.Zero(t, code, "%s%s", out, errs)
	require.Contains(t, out, `"ok": true`)
	require.NotContains(t, out, "may run")
}

func TestStatusWithoutGateway(t *testing.T) {
	code, _, errs := lend(t, t.TempDir(), "status")
	require.Equal(t, 1, code)
	require.Contains(t, errs, "lend: hint: lend serve")
}

func TestRunSaysThatNothingWasSent(t *testing.T) {
	dir := t.TempDir()
	cases := map[string][]string{
		"no-lease":      {"run", "github", "issue.list"},
		"missing-file":  {"run", "--lease", filepath.Join(dir, "none"), "github", "issue.list"},
		"no-descriptor": {"run", "--lease-fd", "97", "github", "issue.list"},
		"two-leases":    {"run", "--lease", "a", "--lease-fd", "5", "github", "issue.list"},
		"bad-stdin":     {"run", "--stdin", "maybe", "github", "issue.list"},
	}
	t.Setenv("LEND_LEASE", "")
	t.Setenv("LEND_LEASE_FILE", "")
	t.Setenv("LEND_DIR", dir)
	for title, args := range cases {
		t.Run(title, func(t *testing.T) {
			var out, errs bytes.Buffer
			code := run(t.Context(), newApp(args, strings.NewReader(""), &out, &errs))
			require.Equal(t, 125, code, "%s", errs.String())
			require.Contains(t, errs.String(), "lend: error: ")
		})
	}
}

func TestResult(t *testing.T) {
	cases := map[string]struct {
		err    error
		origin string
		ran    string
		code   string
		retry  bool
	}{
		"success":      {nil, "command", "yes", "OK", false},
		"failure":      {&client.ExitError{Code: 3}, "command", "yes", "OK", false},
		"busy":         {&protocol.Refusal{Code: protocol.CodeBusy}, "gateway", "no", "BUSY", true},
		"denied":       {&protocol.Refusal{Code: protocol.CodeDenied}, "gateway", "no", "DENIED", false},
		"timeout":      {&protocol.Ended{Code: protocol.CodeTimeout}, "gateway", "yes", "TIMEOUT", false},
		"unknown":      {&protocol.Ended{Code: protocol.CodeOutcomeUnknown}, "caller", "unknown", "OUTCOME_UNKNOWN", false},
		"untold":       {&protocol.Ended{Code: protocol.CodeOutcomeUnknown, Cause: &protocol.Refusal{Code: protocol.CodeLeaseExpired}}, "caller", "unknown", "OUTCOME_UNKNOWN", false},
		"no-record":    {&protocol.Refusal{Code: protocol.CodeOutcomeUnknown}, "gateway", "unknown", "OUTCOME_UNKNOWN", false},
		"gone":         {&protocol.Ended{Code: protocol.CodeOutcomeUnknown, Exit: &protocol.Exit{Status: 3}}, "caller", "yes", "OUTPUT_LOST", false},
		"gone-no-end":  {&protocol.Ended{Code: protocol.CodeOutcomeUnknown, Exit: &protocol.Exit{Code: protocol.CodeOutcomeUnknown}}, "caller", "unknown", "OUTCOME_UNKNOWN", false},
		"full":         {&client.OutputError{Output: "standard output", Err: syscall.ENOSPC}, "caller", "yes", "OUTPUT_LOST", false},
		"full-failure": {&client.OutputError{Output: "standard output", Err: syscall.ENOSPC, End: &client.ExitError{Code: 3}}, "caller", "yes", "OUTPUT_LOST", false},
		"full-unknown": {&client.OutputError{Output: "standard output", Err: syscall.ENOSPC, End: &protocol.Ended{Code: protocol.CodeOutcomeUnknown}}, "caller", "unknown", "OUTCOME_UNKNOWN", false},
		"not-there":    {client.ErrUnreachable, "caller", "no", "NOT_SENT", true},
		"not-sent":     {errors.New("no address"), "caller", "no", "NOT_SENT", false},
	}
	for title, c := range cases {
		t.Run(title, func(t *testing.T) {
			r := resultOf(&client.Cmd{OperationID: "op"}, c.err, client.ExitStatus(c.err), time.Second)
			require.Equal(t, c.origin, r.Origin)
			require.Equal(t, c.ran, r.Ran)
			require.Equal(t, c.code, r.Code)
			require.Equal(t, c.retry, r.Retryable)
			require.Equal(t, int64(1000), r.Duration)
		})
	}
}

// A refusal of what is asked last is none of what may have run before: nothing is retried
// without its input, and nobody is told that nothing ran.
func TestUnknownBeforeRefused(t *testing.T) {
	for _, code := range []protocol.Code{protocol.CodeInputRejected, protocol.CodeBusy, protocol.CodeLeaseRevoked} {
		refused := &client.RefusedError{Code: code}
		for _, err := range []error{
			&client.EndedError{Code: protocol.CodeOutcomeUnknown, Cause: fmt.Errorf("%w: %w", client.ErrOutcomeUnknown, refused)},
			fmt.Errorf("%w; then %w", refused, client.ErrOutcomeUnknown),
		} {
			require.False(t, isRefusal(err, code))
			require.ErrorIs(t, forPeople(err), client.ErrOutcomeUnknown)
			require.NotEqual(t, code.Advice(), adviceOf(err))
		}
		require.True(t, isRefusal(fmt.Errorf("start: %w", refused), code))
		require.Equal(t, error(refused), forPeople(fmt.Errorf("start: %w", refused)))
	}
	unknown := &client.RefusedError{Code: protocol.CodeOutcomeUnknown}
	require.Equal(t, error(unknown), forPeople(fmt.Errorf("%w: %w", client.ErrOutcomeUnknown, unknown)), "the gateway's own word")
}

func TestNoInputFromTheNullDevice(t *testing.T) {
	null, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer func() { require.NoError(t, null.Close()) }()
	require.Nil(t, usefulStdin(null))
	var r io.Reader = strings.NewReader("x")
	require.Equal(t, r, usefulStdin(r))
}

func TestNothingActsOnTheTerminal(t *testing.T) {
	dir := t.TempDir()
	evil := filepath.Join(dir, "\x1b[31mred\u202e\x9b\x07")
	for title, args := range map[string][]string{
		"path":     {"connector", "add", evil},
		"flag":     {"id", "--\x1b[31m"},
		"argument": {"connector", "show", "\x1b[31m"},
		"lease":    {"run", "--lease", evil, "a", "b"},
	} {
		t.Run(title, func(t *testing.T) {
			code, out, errs := lend(t, filepath.Join(dir, "lend"), args...)
			require.NotZero(t, code)
			for _, s := range []string{out, errs} {
				require.NotContains(t, s, "\x1b")
				require.NotContains(t, s, "\u202e")
				require.NotContains(t, s, "\x07")
				require.True(t, utf8.ValidString(s))
			}
			require.Contains(t, errs, `\x1b`)
		})
	}
	code, out, errs := lend(t, evil, "init")
	require.Zero(t, code, "%s", errs)
	require.NotContains(t, out+errs, "\x1b")
}

func TestADirectoryOfAnotherUserIsRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a directory away")
	}
	dir := filepath.Join(t.TempDir(), "lend")
	require.NoError(t, os.Mkdir(dir, 0o755))
	require.NoError(t, os.Chown(dir, 12345, -1))
	code, _, errs := lend(t, dir, "init")
	require.Equal(t, 2, code)
	require.Contains(t, errs, "belongs to another user")
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left, "no key is put there")
}

func TestALongDirectoryNeedsNoGateway(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("x", 120))
	code, _, errs := lend(t, dir, "init")
	require.Zero(t, code, "%s", errs)
	code, _, errs = lend(t, dir, "status")
	require.Equal(t, 1, code)
	require.Contains(t, errs, "no gateway is running")
}

// Two connections make every rule ambiguous that names none: a mistyped name must
// not make one.
func TestReadingMakesNoConnection(t *testing.T) {
	dir := t.TempDir()
	source := filepath.Join(dir, "fx")
	executable, err := os.Executable()
	require.NoError(t, err)
	for _, args := range [][]string{
		{"init"},
		{"connector", "new", "exec:" + executable, "--key", "fx", "--out", source},
		{"connector", "add", source},
		{"connector", "setting", "set", "fx", "TZ", "UTC"},
	} {
		code, _, errs := lend(t, dir, args...)
		require.Zero(t, code, "%s", errs)
	}
	value := filepath.Join(dir, "value")
	require.NoError(t, os.WriteFile(value, []byte("x"), 0o600))
	cases := map[string]struct {
		args []string
		code int
	}{
		"secret-list":    {[]string{"secret", "list", "fx"}, 2},
		"secret-remove":  {[]string{"secret", "remove", "fx", "token"}, 2},
		"setting-list":   {[]string{"setting", "list", "fx"}, 2},
		"setting-remove": {[]string{"setting", "remove", "fx", "TZ"}, 2},
		"undeclared":     {[]string{"secret", "set", "fx", "token", "--file", value}, 1},
		"reserved":       {[]string{"setting", "set", "fx", "HOME", "/"}, 1},
		"no-login":       {[]string{"login", "fx"}, 1},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			code, _, errs := lend(t, dir, append(append([]string{"connector"}, c.args...), "--connection", "typo")...)
			require.Equal(t, c.code, code, "%s", errs)
			require.Contains(t, errs, "lend: error: ")
			code, _, errs = lend(t, dir, "connector", "setting", "list", "fx", "--connection", "typo")
			require.Equal(t, 2, code)
			require.Contains(t, errs, "fx has no connection typo\nlend: hint: --connection default\n")
		})
	}
}
