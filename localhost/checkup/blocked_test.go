package checkup

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// What stands in the place of the secrets leads to the command that mends it.
func TestSecretsBlocked(t *testing.T) {
	t.Parallel()
	w, _, _ := account(t, "keyfile", nil)
	values := filepath.Join(w.places.Connections, "sealed", "values", "tool")
	require.NoError(t, os.RemoveAll(values))
	require.NoError(t, os.WriteFile(values, nil, 0o600))
	row := w.rows()["route"][0]
	require.Equal(t, Fail, row.Status)
	require.Contains(t, row.Detail, "a file or link is in the place of a directory of secrets")
	require.Equal(t, "lend connector secret set tool NAME --connection default < FILE, for each again; or lend connector remove tool --purge", row.Fix)
}
