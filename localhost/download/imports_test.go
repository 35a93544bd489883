package download

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestImporterHasNoNetwork: nothing that takes an archive in and unpacks it can reach
// the network, for there is none in it.
func TestImporterHasNoNetwork(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps",
		"github.com/lendcli/lend/localhost/download", "github.com/lendcli/lend/localhost/artifact").Output()
	require.NoError(t, err)
	deps := strings.Fields(string(out))
	require.Contains(t, deps, "archive/zip")
	for _, d := range deps {
		require.NotEqual(t, "net", d)
		require.NotContains(t, d, "crypto/tls")
		require.False(t, strings.HasPrefix(d, "net/") && d != "net/url" && d != "net/netip", d)
		require.NotContains(t, d, "golang.org/x/net")
	}
}
