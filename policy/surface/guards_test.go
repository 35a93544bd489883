package surface

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

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
