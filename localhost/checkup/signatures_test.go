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
	second := filepath.Join(t.TempDir(), "signatures-required.json")
	w.places.Publishers = signature.AtRemembering(at, second)
	require.Equal(t, Skip, w.rows()["signatures"][0].Status)
	w.add("native", "")
	edit := func(change func(*signature.Trust)) []Row {
		t.Helper()
		require.NoError(t, w.places.Publishers.Edit(t.Context(), func(t *signature.Trust) error { change(t); return nil }))
		return w.rows()["signatures"]
	}
	row := w.rows()["signatures"][0]
	require.Equal(t, Pass, row.Status)
	require.Equal(t, "0 of 1 releases are signed by a publisher that you trust for them; no release has to be", row.Detail)
	row = edit(func(t *signature.Trust) { t.Require = []string{"another"} })[0]
	require.Equal(t, Pass, row.Status)
	require.Contains(t, row.Detail, "those of another have to be")
	row = edit(func(t *signature.Trust) { t.Require = []string{"another", "tool"} })[0]
	require.Equal(t, Fail, row.Status)
	require.Equal(t, "tool 1.0.0", row.Subject)
	require.Equal(t, "lend connector add one that a publisher signed whom you trust, or lend publisher require --off tool", row.Fix)
	row = edit(func(t *signature.Trust) { t.RequireAll, t.Require = true, nil })[0]
	require.Equal(t, Fail, row.Status)
	require.Contains(t, row.Fix, "or lend publisher require --off --all")
	require.Equal(t, row.Fix, w.rows()["route"][0].Fix)

	// a list that is gone, one whose second place is, one that nobody can read
	require.NoError(t, os.Remove(at))
	rows := w.rows()["signatures"]
	require.Len(t, rows, 2)
	require.Equal(t, Fail, rows[0].Status)
	require.Contains(t, rows[0].Detail, "the list of publishers is gone")
	require.Contains(t, rows[0].Fix, "or lend publisher require --off --all")
	require.Equal(t, Fail, rows[1].Status, "and nothing unsigned starts")
	edit(func(*signature.Trust) {})
	require.NoError(t, os.Remove(second))
	rows = w.rows()["signatures"]
	require.Equal(t, Warn, rows[0].Status)
	require.Equal(t, "lend publisher require --all", rows[0].Fix)
	require.NoError(t, os.WriteFile(at, []byte("{"), 0o600))
	row = w.rows()["signatures"][0]
	require.Equal(t, Fail, row.Status)
	require.Contains(t, row.Detail, "list of publishers")
	require.Contains(t, row.Fix, "mv "+at+" "+at+".damaged")
	require.Equal(t, row.Fix, w.rows()["route"][0].Fix)
	require.NoError(t, os.Remove(at))
	require.Equal(t, Pass, w.rows()["signatures"][0].Status, "who never required anything needs no list")
}
