package interpreter

import (
	"strings"
	"testing"

	"github.com/lendcli/lend/localhost/install/npm"
	"github.com/stretchr/testify/require"
)

func TestManagedTable(t *testing.T) {
	t.Parallel()
	for _, target := range []string{"linux-x64", "linux-arm64", "darwin-x64", "darwin-arm64", "win-x64"} {
		tb, ok := managed(Node, target)
		require.True(t, ok)
		_, err := npm.ParseIntegrity(tb.integrity)
		require.NoError(t, err, target)
		require.True(t, strings.HasPrefix(tb.version, "22."))
		require.False(t, tb.skip(tb.exec))
		require.False(t, tb.skip("bin"))
		require.True(t, tb.skip("include"))
	}
	_, ok := managed(Node, "plan9-x64")
	require.False(t, ok)
	tb, ok := managed(NPM, "plan9-x64")
	require.True(t, ok)
	_, err := npm.ParseIntegrity(tb.integrity)
	require.NoError(t, err)
	require.False(t, tb.skip("node_modules"))
}
