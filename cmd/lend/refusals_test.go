package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/gateway/client"
	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/localhost/install"
	"github.com/lendcli/lend/localhost/install/npm"
	"github.com/lendcli/lend/protocol"
)

// saying is both outputs of a command line, in the order of their lines.
type saying struct{ out, errs, both bytes.Buffer }

func tells(t *testing.T, args ...string) (code int, said *saying) {
	t.Helper()
	said = &saying{}
	a := newApp(args, strings.NewReader(""), io.MultiWriter(&said.out, &said.both), io.MultiWriter(&said.errs, &said.both))
	return run(t.Context(), a), said
}

// ofACommand are those whose standard output is a command's, with their status for a
// mistake in the command line.
var ofACommand = map[string]int{"lend run": 125, "lend connector try": 125, "lend ops attach": 2}

// checkJSON wants what a program is told to be well formed, and to come last.
func checkJSON(t *testing.T, path string, code int, said *saying) {
	t.Helper()
	require.Contains(t, said.errs.String(), "lend: error: ")
	if _, of := ofACommand[path]; of {
		require.Empty(t, said.out.String(), "stdout is the command's")
		lines := strings.Split(strings.TrimSpace(said.errs.String()), "\n")
		var r result
		require.NoError(t, json.Unmarshal([]byte(lines[len(lines)-1]), &r), "%s", said.errs.String())
		require.Equal(t, 1, r.SchemaVersion)
		require.Equal(t, code, r.ExitStatus)
		require.Equal(t, "NOT_SENT", r.Code)
		require.NotEmpty(t, r.Message)
		return
	}
	require.True(t, strings.HasSuffix(said.both.String(), said.out.String()), "the object comes last:\n%s", said.both.String())
	d := json.NewDecoder(&said.out)
	var e struct {
		SchemaVersion int
		Error         string
	}
	require.NoError(t, d.Decode(&e))
	require.Equal(t, 1, e.SchemaVersion)
	require.NotEmpty(t, e.Error)
	require.ErrorIs(t, d.Decode(&e), io.EOF, "one object")
}

// A mistake in a command line is 2 in every command, or 125 where 2 is the command's; and
// with --json, wherever it stands, programs are told after people.
func TestEveryCommandRefusesMistakes(t *testing.T) {
	t.Setenv("LEND_DIR", t.TempDir())
	n := 0
	walk(newApp(nil, strings.NewReader(""), io.Discard, io.Discard).root(), func(c *cobra.Command) {
		path := c.CommandPath()
		if c.Hidden || c.Name() == "help" || strings.Contains(path, "completion") || c.DisableFlagParsing {
			return
		}
		n++
		want, of := ofACommand[path]
		if !of {
			want = 2
		}
		words := strings.Fields(path)[1:]
		for title, args := range map[string][]string{
			"flag":      {"--json", "--no-such-flag"},
			"json-last": {"--no-such-flag", "--json"},
			"value":     {"--json=maybe", "--json"},
			"control":   {"--json", "--\x1b[31m\xff"},
		} {
			t.Run(strings.Join(append(slices.Clone(words), title), "-"), func(t *testing.T) {
				code, said := tells(t, append(slices.Clone(words), args...)...)
				require.Equal(t, want, code, "%s", said.errs.String())
				checkJSON(t, path, code, said)
				require.NotContains(t, said.errs.String(), "\x1b")
			})
		}
		if strings.Contains(c.Use, "…") || c.Name() == "preset" {
			return
		}
		t.Run(strings.Join(append(slices.Clone(words), "arguments"), "-"), func(t *testing.T) {
			code, said := tells(t, append(slices.Clone(words), "--json", "a", "b", "c", "d", "e", "f")...)
			require.Equal(t, want, code, "%s", said.errs.String())
			checkJSON(t, path, code, said)
		})
	})
	require.Greater(t, n, 60)
}

// Refusals that are no mistakes of a flag: the same, with a hint where there is a next step.
func TestRefusalsAreToldLast(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("LEND_DIR", dir)
	for _, v := range []string{"LEND_LEASE", "LEND_LEASE_FILE", sessionVariable} {
		t.Setenv(v, "")
	}
	code, said := tells(t, "init")
	require.Zero(t, code, "%s", said.errs.String())
	junk := filepath.Join(dir, "junk")
	require.NoError(t, os.WriteFile(junk, []byte("\x00\xff\x1b[31m"), 0o600))
	for title, c := range map[string]struct {
		args []string
		code int
	}{
		"status":             {[]string{"status"}, 1},
		"ops-list":           {[]string{"ops", "list"}, 1},
		"ops-show":           {[]string{"ops", "show", "op-x"}, 1},
		"ops-show-empty":     {[]string{"ops", "show", ""}, 2},
		"ops-status":         {[]string{"ops", "status", "op-0123456789abcdef"}, 2},
		"ops-status-short":   {[]string{"ops", "status", "x", "--lease", junk}, 2},
		"ops-stop-junk":      {[]string{"ops", "stop", "op-0123456789abcdef", "--lease", junk}, 2},
		"catalog":            {[]string{"catalog"}, 2},
		"catalog-junk":       {[]string{"catalog", "--lease", junk}, 2},
		"lease-show-junk":    {[]string{"lease", "show", junk}, 2},
		"lease-show-none":    {[]string{"lease", "show", filepath.Join(dir, "none")}, 2},
		"lease-show-dir":     {[]string{"lease", "show", dir}, 2},
		"lease-accept-junk":  {[]string{"lease", "accept", junk}, 2},
		"lease-issue":        {[]string{"lease", "issue", "--to", "\x1b", "github", "issue.list"}, 2},
		"policy-check-none":  {[]string{"policy", "check", filepath.Join(dir, "none")}, 2},
		"policy-check-junk":  {[]string{"policy", "check", junk}, 2},
		"policy-allow":       {[]string{"policy", "allow", "--to", "nobody", "github", "issue.list"}, 1},
		"peer-remove":        {[]string{"peer", "remove", "nobody"}, 2},
		"peer-invite":        {[]string{"peer", "invite"}, 1},
		"connector-show":     {[]string{"connector", "show", "\xff"}, 2},
		"shim-add":           {[]string{"shim", "add", "github"}, 2},
		"shim-add-key":       {[]string{"shim", "add", "Not A Key", "--as", "x"}, 2},
		"shim-remove":        {[]string{"shim", "remove", "\x1b"}, 1},
		"broker-close":       {[]string{"broker", "close"}, 2},
		"broker-status":      {[]string{"broker", "status"}, 1},
		"audit-verify-key":   {[]string{"audit", "verify", "--key", "junk"}, 2},
		"audit-verify-empty": {[]string{"audit", "verify", "--key", ""}, 2},
		"audit-tail":         {[]string{"audit", "tail", "-n", "-1"}, 2},
		"help":               {[]string{"help", "nosuch"}, 2},
		"help-sub":           {[]string{"help", "lease", "\x1b"}, 2},
		"audit-show-since":   {[]string{"audit", "show", "--since", "yesterdayish"}, 2},
		"serve-log":          {[]string{"serve", "--log", "loud"}, 2},
		"broker-log":         {[]string{"broker", "--log", ""}, 2},
		"run":                {[]string{"run", "github", "issue.list"}, 125},
		"run-junk":           {[]string{"run", "--lease", junk, "github", "issue.list"}, 125},
		"run-dir":            {[]string{"run", "--lease", dir, "github", "issue.list"}, 125},
		"run-result":         {[]string{"run", "--result", dir, "github", "issue.list"}, 125},
		"run-stdin":          {[]string{"run", "--stdin", "maybe", "github", "issue.list"}, 125},
		"run-short":          {[]string{"run", "github"}, 125},
		"try":                {[]string{"connector", "try", "--peer", "nobody", "github", "issue.list"}, 125},
		"try-short":          {[]string{"connector", "try", "github"}, 125},
		"attach":             {[]string{"ops", "attach", "op-0123456789abcdef"}, 125},
		"attach-empty":       {[]string{"ops", "attach", ""}, 125},
	} {
		t.Run(title, func(t *testing.T) {
			words := 1
			if !slices.Contains([]string{"run", "status", "catalog", "serve", "help"}, c.args[0]) && title != "broker-log" {
				words = 2
			}
			args := append(append(slices.Clone(c.args[:words]), "--json"), c.args[words:]...)
			code, said := tells(t, args...)
			require.Equal(t, c.code, code, "%s", said.errs.String())
			checkJSON(t, "lend "+strings.Join(c.args[:words], " "), code, said)
			require.NotContains(t, said.both.String(), "\x1b")
			require.NotContains(t, said.both.String(), "0x10")
		})
	}
}

// Whatever stops a caller says what to do or whom to ask, whichever command it is of; and
// no other command speaks of lend run's options.
func TestAdviceOfEachError(t *testing.T) {
	t.Parallel()
	for want, errs := range map[string][]error{
		"try again later":    {&client.RefusedError{Code: protocol.CodeBusy}, &client.RefusedError{Code: protocol.CodeRateLimited}},
		"lend peer invite":   {errors.Join(client.ErrUnreachable, client.ErrNotAdmitted)},
		"lend version":       {client.ErrNotGateway},
		"--address":          {client.ErrNoAddress},
		"lend serve":         {client.ErrUnreachable},
		"--version":          {client.ErrVersions},
		"for a new one":      {&lease.Error{Reason: lease.ReasonExpired}, &lease.Error{Reason: lease.ReasonSignature}, &client.RefusedError{Code: protocol.CodeLeaseRevoked}},
		"clock":              {&lease.Error{Reason: lease.ReasonNotYet}},
		"lend id prints":     {&lease.Error{Reason: lease.ReasonHolder}},
		"ask the owner for":  {&lease.Error{Reason: lease.ReasonNoCommand}, &client.RefusedError{Code: protocol.CodeCommandUnknown}},
		"same invocation":    {&client.RefusedError{Code: protocol.CodeOperationUnknown}},
		"look at the link":   {&client.EndedError{Code: protocol.CodePeerGone}},
		"lend catalog lists": {&client.EndedError{Code: protocol.CodeRouteRetired}},
	} {
		for _, err := range errs {
			said := &saying{}
			a := newApp(nil, nil, &said.out, &said.errs)
			require.Equal(t, 1, a.fail(err))
			require.Contains(t, said.errs.String(), "lend: hint: ")
			require.Contains(t, said.errs.String(), want, "%v", err)
			require.NotContains(t, said.errs.String(), "lend run --wait")
		}
	}
	busy := &client.RefusedError{Code: protocol.CodeBusy}
	require.Equal(t, "try again later; lend catalog --wait waits longer", hintOf(waitsLonger(busy, "lend catalog")))
	require.Empty(t, hintOf(waitsLonger(&client.RefusedError{Code: protocol.CodeDenied}, "lend run")))
	a := newApp(nil, nil, io.Discard, io.Discard)
	r, people := a.report(runFlags{}, nil, waitsLonger(busy, "lend run"), time.Now())
	require.Equal(t, 75, r.ExitStatus)
	require.Equal(t, "try again later; lend run --wait waits longer", hintOf(people))
	require.Equal(t, hintOf(people), r.Advice)
}

// Bytes that are not those that are pinned have a next step, which is another for an
// interpreter: it does not come through npm's cache.
func TestOtherBytesHaveANextStep(t *testing.T) {
	err := fmt.Errorf("install x@1.0.0: npm: %w", npm.ErrIntegrity)
	require.Contains(t, hintOf(storeError(err)), "lend connector gc, which empties npm's cache, then the same command again")
	require.Contains(t, hintOf(runtimeError(install.RuntimeSource{Name: "node"}, err)), "lend runtime add node again, or with another --registry")
	require.Contains(t, hintOf(runtimeError(install.RuntimeSource{Name: "node", File: "f"}, err)), "--file with the package")
	require.ErrorIs(t, storeError(err), npm.ErrIntegrity)
}
