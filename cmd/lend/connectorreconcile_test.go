package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/gateway/admin"
	"github.com/lendcli/lend/localhost"
	"github.com/lendcli/lend/localhost/route"
	"github.com/lendcli/lend/protocol/name"
)

// gatewayOf is a running gateway that answers a reconciliation as a test says.
type gatewayOf struct {
	admin.Backend
	answer func() (admin.Reconciled, error)
}

func (b *gatewayOf) Reconcile(context.Context) (admin.Reconciled, error) { return b.answer() }

// machineWithGateway has the Connector tool 1.0.0 installed, and sources of it.
func machineWithGateway(t *testing.T) (dir string, source func(version string) string, gateway *gatewayOf) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "lend")
	code, _, errs := lend(t, dir, "init")
	require.Zero(t, code, errs)
	self, err := os.Executable()
	require.NoError(t, err)
	f, err := os.Open(self)
	require.NoError(t, err)
	head, err := io.ReadAll(io.LimitReader(f, 4096))
	require.NoError(t, errors.Join(err, f.Close()))
	program := filepath.Join(t.TempDir(), "tool")
	require.NoError(t, os.WriteFile(program, head, 0o700))
	source = func(version string) string {
		out := filepath.Join(t.TempDir(), version)
		code, _, errs := lend(t, dir, "connector", "new", "exec:"+program, "--key", "tool", "--version", version, "--out", out)
		require.Zero(t, code, errs)
		return out
	}
	code, _, errs = lend(t, dir, "connector", "add", source("1.0.0"))
	require.Zero(t, code, errs)
	gateway = &gatewayOf{answer: func() (admin.Reconciled, error) { return admin.Reconciled{Connectors: []admin.Outcome{}}, nil }}
	s, err := admin.Listen(t.Context(), filepath.Join(dir, "run", "admin.sock"), gateway, zerolog.Nop())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return dir, source, gateway
}

// No command says that something was done which the running gateway did not take up: the
// Connector goes on there as it was. What is wrong with another Connector is said, and
// fails nothing.
func TestNoSuccessWithoutTheGateway(t *testing.T) {
	of := func(o ...admin.Outcome) func() (admin.Reconciled, error) {
		return func() (admin.Reconciled, error) { return admin.Reconciled{Connectors: o}, nil }
	}
	r := admin.Route{Connector: "tool", Version: "1.0.0", Connection: "default"}
	bad := r
	bad.Reason = "its files were changed"
	next := bad
	next.Version = "1.1.0"
	failing := map[string]struct {
		answer   func() (admin.Reconciled, error)
		commands []string
		want     string
	}{
		"it looked at nothing": {
			func() (admin.Reconciled, error) {
				return admin.Reconciled{}, errors.New("reconcile: list releases: no")
			}, []string{"disable", "enable", "remove", "add", "update"}, "did not take it up, and goes on with what it had: the gateway answers: .*list releases",
		},
		"it is of an earlier version": {
			func() (admin.Reconciled, error) { return admin.Reconciled{Problems: []string{"read releases"}}, nil },
			[]string{"disable", "enable", "remove", "add", "update"},
			"did not take it up, and goes on with what it had: read releases",
		},
		"it still has the route": {of(admin.Outcome{Connector: "tool", Current: []admin.Route{r}}), []string{"disable", "remove"}, "still has its route: tool 1.0.0 "},
		"something still runs":   {of(admin.Outcome{Connector: "tool", Left: []admin.Route{bad}}), []string{"disable", "remove"}, "still runs"},
		"it has no route":        {of(admin.Outcome{Connector: "tool", Failed: []admin.Route{bad}}), []string{"enable", "add"}, "has no route of it: tool 1.0.0 .*: its files were changed"},
		"nor of the next one":    {of(admin.Outcome{Connector: "tool", Failed: []admin.Route{next}}), []string{"update"}, "has no route of it: tool 1.1.0 .*: its files were changed"},
	}
	arguments := func(command string, source func(string) string) []string {
		switch command {
		case "add":
			return []string{"connector", "add", source("1.0.0")}
		case "update":
			return []string{"connector", "update", "tool", source("1.1.0")}
		default:
			return []string{"connector", command, "tool"}
		}
	}
	for n, c := range failing {
		for _, command := range c.commands {
			t.Run(command+": "+n, func(t *testing.T) {
				t.Parallel()
				dir, source, gateway := machineWithGateway(t)
				if command == "remove" { // its removal stands until the gateway has retired it
					defer func() {
						code, out, _ := lend(t, dir, "connector", "list")
						require.Zero(t, code)
						require.Contains(t, out, "removing")
					}()
				}
				args := arguments(command, source)
				gateway.answer = c.answer
				code, out, errs := lend(t, dir, args...)
				require.Equal(t, 1, code, errs)
				require.Empty(t, out, "no success is said")
				require.Regexp(t, c.want, errs)
				require.Contains(t, errs, "lend: hint: ")
			})
		}
	}
	for _, command := range []string{"disable", "enable", "remove", "add", "update"} {
		t.Run(command+": another is in trouble", func(t *testing.T) {
			t.Parallel()
			dir, source, gateway := machineWithGateway(t)
			args := arguments(command, source)
			gateway.answer = of(admin.Outcome{Connector: "other", Failed: []admin.Route{{Connector: "other", Reason: "its receipt is damaged"}}})
			code, out, errs := lend(t, dir, args...)
			require.Zero(t, code, errs)
			require.NotEmpty(t, out)
			require.Contains(t, errs, "lend: nothing is lent of other: its receipt is damaged; next: lend connector list")
		})
	}
}

// The answer has one outcome for each Connector, whatever became of it.
func TestReconciledShown(t *testing.T) {
	t.Parallel()
	id := func(key, version, connection string) (id route.Identity) {
		id.Connector, _ = name.ParseConnectorKey(key)
		id.Version, _ = name.ParseVersion(version)
		id.Connection, _ = name.ParseConnectionID(connection)
		return id
	}
	no := errors.New("no\nway")
	got := reconciledShown([]localhost.Receipt{
		{Identity: id("a", "1.0.0", ""), State: localhost.StateFailed, Err: no},
		{Identity: id("a", "1.0.0", "default"), State: localhost.StateRetired, Err: no},
		{Identity: id("b", "1.0.0", "default"), State: localhost.StateKept},
		{Identity: id("b", "1.1.0", "default"), State: localhost.StatePublished},
		{Identity: id("c", "1.0.0", "default"), State: localhost.StateDraining},
		{Identity: id("d", "1.0.0", "default"), State: localhost.StateDisabled},
	}, no)
	require.Equal(t, []admin.Outcome{
		{
			Connector: "a",
			Failed:    []admin.Route{{Connector: "a", Version: "1.0.0", Reason: "no; way"}},
			Left:      []admin.Route{{Connector: "a", Version: "1.0.0", Connection: "default", Reason: "no; way"}},
		},
		{Connector: "b", Current: []admin.Route{
			{Connector: "b", Version: "1.0.0", Connection: "default", Ready: true},
			{Connector: "b", Version: "1.1.0", Connection: "default", Ready: true},
		}},
		{Connector: "c"},
		{Connector: "d"},
	}, got.Connectors)
	require.Equal(t, []string{"no", "way"}, got.Problems)
	require.NotNil(t, reconciledShown(nil, nil).Connectors, "none, and not of an earlier version")
}
