package shims

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/gateway/ownerfile"
	"github.com/lendcli/lend/protocol/name"
)

func key(t *testing.T, s string) name.ConnectorKey {
	t.Helper()
	k, err := name.ParseConnectorKey(s)
	require.NoError(t, err)
	return k
}

func TestAddListRemove(t *testing.T) {
	t.Parallel()
	d := New(filepath.Join(t.TempDir(), "shims"))
	all, err := d.List()
	require.NoError(t, err)
	require.Empty(t, all)
	require.NoError(t, d.Add("gh", key(t, "github"), "/opt/lend-shim"))
	require.NoError(t, d.Add("gh", key(t, "github"), "/opt/lend-shim"), "the same again")
	require.NoError(t, d.Add("fx", key(t, "fx"), "/opt/lend-shim"))
	to, err := os.Readlink(filepath.Join(d.Bin(), "gh"))
	require.NoError(t, err)
	require.Equal(t, "/opt/lend-shim", to)
	for _, dir := range []string{d.path, d.Bin()} {
		info, err := os.Stat(dir)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o700), info.Mode().Perm())
	}
	all, err = d.List()
	require.NoError(t, err)
	require.Equal(t, []Shim{{Name: "fx", Connector: key(t, "fx")}, {Name: "gh", Connector: key(t, "github")}}, all)
	got, err := d.Lookup("gh")
	require.NoError(t, err)
	require.Equal(t, key(t, "github"), got)
	require.ErrorIs(t, d.Add("gh", key(t, "other"), "/opt/lend-shim"), ErrTaken)

	require.NoError(t, d.Add("gh", key(t, "github"), "/new/lend-shim"), "lend has moved")
	to, err = os.Readlink(filepath.Join(d.Bin(), "gh"))
	require.NoError(t, err)
	require.Equal(t, "/new/lend-shim", to)

	require.NoError(t, d.Remove("gh"))
	require.ErrorIs(t, d.Remove("gh"), ErrNone)
	_, err = os.Lstat(filepath.Join(d.Bin(), "gh"))
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = d.Lookup("gh")
	require.ErrorIs(t, err, ErrNone)
	_, err = Dir{}.Lookup("fx")
	require.ErrorIs(t, err, ErrNone)
}

// What is not ours is never replaced and never removed.
func TestForeignFilesStay(t *testing.T) {
	t.Parallel()
	d := New(filepath.Join(t.TempDir(), "shims"))
	require.NoError(t, d.Add("gh", key(t, "github"), "/opt/lend-shim"))
	link := filepath.Join(d.Bin(), "gh")
	for what, put := range map[string]func() error{
		"a file":       func() error { return os.WriteFile(link, []byte("mine"), 0o755) },
		"another link": func() error { return os.Symlink("/usr/bin/gh", link) },
		"a directory":  func() error { return os.Mkdir(link, 0o700) },
	} {
		require.NoError(t, os.Remove(link))
		require.NoError(t, put())
		require.ErrorIs(t, d.Remove("gh"), ErrForeign, what)
		require.ErrorIs(t, d.Add("gh", key(t, "github"), "/opt/lend-shim"), ErrForeign, what)
		_, err := d.Lookup("gh")
		require.ErrorIs(t, err, ErrForeign, what)
		all, err := d.List()
		require.NoError(t, err)
		require.True(t, all[0].Foreign, what)
		_, err = os.Lstat(link)
		require.NoError(t, err, what)
	}
	require.NoError(t, os.WriteFile(filepath.Join(d.Bin(), "stripe"), []byte("mine"), 0o755))
	require.ErrorIs(t, d.Add("stripe", key(t, "stripe"), "/opt/lend-shim"), ErrForeign)
	require.NoFileExists(t, filepath.Join(d.path, "stripe.json"))
	require.ErrorIs(t, d.Remove("stripe"), ErrNone)
	b, err := os.ReadFile(filepath.Join(d.Bin(), "stripe"))
	require.NoError(t, err)
	require.Equal(t, "mine", string(b))
}

func TestNames(t *testing.T) {
	t.Parallel()
	d := New(filepath.Join(t.TempDir(), "shims"))
	for _, as := range []string{"", ".", "..", "-x", ".x", "a/b", "../x", "a b", "lend", "LEND", "lend-shim", "ä", "a\x00", strings.Repeat("a", 65)} {
		require.ErrorIs(t, d.Add(as, key(t, "a"), "/x"), ErrName, "%q", as)
		require.ErrorIs(t, d.Remove(as), ErrNone, "%q", as)
		_, err := d.Lookup(as)
		require.ErrorIs(t, err, ErrNone, "%q", as)
	}
	require.NoError(t, CheckName("lark-cli"))
	require.Error(t, d.Add("gh", key(t, "a"), "lend-shim"))
}

// A record that somebody else could have written, or that says too much, is none.
func TestRecordsAreChecked(t *testing.T) {
	t.Parallel()
	d := New(filepath.Join(t.TempDir(), "shims"))
	require.NoError(t, d.Add("gh", key(t, "github"), "/opt/lend-shim"))
	file := filepath.Join(d.path, "gh.json")
	good, err := os.ReadFile(file)
	require.NoError(t, err)
	for what, text := range map[string]string{
		"version": `{"schemaVersion":2,"connector":"github","target":"/opt/lend-shim"}`,
		"field":   `{"schemaVersion":1,"connector":"github","target":"/opt/lend-shim","lease":"x"}`,
		"two":     string(good) + string(good),
		"key":     `{"schemaVersion":1,"connector":"A B","target":"/opt/lend-shim"}`,
		"target":  `{"schemaVersion":1,"connector":"github","target":""}`,
		"nothing": ``,
	} {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		_, err := d.Lookup("gh")
		require.Error(t, err, what)
	}
	require.NoError(t, os.WriteFile(file, good, 0o600))
	require.NoError(t, os.Chmod(file, 0o666))
	_, err = d.Lookup("gh")
	require.ErrorIs(t, err, ownerfile.ErrUnsafe)
}
