package checkup

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/localhost/signature"
)

func TestSignatures(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	at := filepath.Join(t.TempDir(), "publishers.json")
	w.places.Publishers = signature.At(at)
	require.Equal(t, Skip, w.rows()["signatures"][0].Status)
	w.add("native", "")
	row := w.rows()["signatures"][0]
	require.Equal(t, Pass, row.Status)
	require.Contains(t, row.Detail, "0 of 1 releases")
	require.NoError(t, w.places.Publishers.Edit(t.Context(), func(t *signature.Trust) error { t.RequireAll = true; return nil }))
	row = w.rows()["signatures"][0]
	require.Equal(t, Fail, row.Status)
	require.Equal(t, "tool 1.0.0", row.Subject)
	require.Contains(t, row.Fix, "lend publisher add PUBLISHER")
	require.NoError(t, os.WriteFile(at, []byte("{"), 0o600))
	row = w.rows()["signatures"][0]
	require.Equal(t, Fail, row.Status)
	require.Contains(t, row.Detail, "list of publishers")
}
