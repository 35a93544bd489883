package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/protocol/name"
)

// What a command line names of a lease keeps its version, and may finish where the
// lease lets it.
func TestGrantsToPassOn(t *testing.T) {
	t.Parallel()
	must := func(g lease.Grant, key, version string, finish bool, commands ...string) lease.Grant {
		var err error
		g.Connector, err = name.ParseConnectorKey(key)
		require.NoError(t, err)
		g.Version, err = name.ParseVersion(version)
		require.NoError(t, err)
		for _, s := range commands {
			c, err := name.ParseCommand(s)
			require.NoError(t, err)
			g.Commands = append(g.Commands, c)
		}
		g.Finish = finish
		return g
	}
	given := &lease.Lease{Grants: []lease.Grant{
		must(lease.Grant{}, "one", "1", true, "a", "b"),
		must(lease.Grant{}, "one", "1", false, "c"),
		must(lease.Grant{}, "two", "1", false, "a"),
		must(lease.Grant{}, "two", "2", false, "a"),
	}}
	got, err := grantsToPassOn(given, "", []string{"one", "c", "b", "x"})
	require.NoError(t, err)
	require.Equal(t, []lease.Grant{must(lease.Grant{}, "one", "1", true, "b"), must(lease.Grant{}, "one", "1", false, "c", "x")}, got)
	got, err = grantsToPassOn(given, "2", []string{"two", "a"})
	require.NoError(t, err)
	require.Equal(t, given.Grants[3:], got)
	got, err = grantsToPassOn(given, "", nil)
	require.NoError(t, err)
	require.Equal(t, given.Grants, got)
	for label, c := range map[string]struct {
		version string
		args    []string
		says    string
	}{
		"two-versions":  {"", []string{"two", "a"}, "choose one"},
		"no-connector":  {"", []string{"three", "a"}, "grants nothing of three"},
		"bad-connector": {"", []string{"/", "a"}, "connector key"},
		"bad-version":   {"/", []string{"one", "a"}, "version"},
		"bad-command":   {"", []string{"one", "/"}, "command"},
		"of-what":       {"1", nil, "is not named"},
	} {
		_, err := grantsToPassOn(given, c.version, c.args)
		var usage *usageError
		require.ErrorAs(t, err, &usage, label)
		require.ErrorContains(t, err, c.says, label)
	}
	_, err = grantsToPassOn(&lease.Lease{}, "", nil)
	require.ErrorContains(t, err, "grants nothing")
}
