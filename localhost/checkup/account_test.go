package checkup

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"
	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/localhost/connection"
	"github.com/lendcli/lend/localhost/home"
	"github.com/lendcli/lend/localhost/sealed"
	"github.com/lendcli/lend/protocol/name"
)

// account is a machine with a tool whose secret is set.
func account(t *testing.T, source string, ask sealed.Ask) (*world, *connection.Root, *connection.Connection) {
	t.Helper()
	w := newWorld(t)
	w.add("native", "")
	root, err := connection.OpenAsking(w.places.Connections, ask)
	require.NoError(t, err)
	src, err := sealed.ParseSource(source)
	require.NoError(t, err)
	require.NoError(t, root.Sealed().Create(src))
	all, err := root.Ensure(w.key)
	require.NoError(t, err)
	token, err := name.ParseLabel("token")
	require.NoError(t, err)
	require.NoError(t, all[0].SetSecret(connection.Declared{Secrets: []connection.Declaration{{Name: "token", Variable: "TOOL_TOKEN"}}}, token, "", strings.NewReader(canary)))
	return w, root, all[0]
}

// A secret that is set and does not open is no secret that a start would have.
func TestSecretThatDoesNotOpen(t *testing.T) {
	t.Parallel()
	w, _, _ := account(t, "keyfile", nil)
	require.Equal(t, Pass, w.rows()["route"][0].Status)
	value := filepath.Join(w.places.Connections, "sealed", "values", "tool", "default", "token.sealed")
	was, err := os.ReadFile(value)
	require.NoError(t, err)
	for n, change := range map[string]func() error{
		"changed": func() error { was[len(was)-1] ^= 1; return os.WriteFile(value, was, 0o600) },
		"cut":     func() error { return os.WriteFile(value, was[:20], 0o600) },
		"empty":   func() error { return os.WriteFile(value, nil, 0o600) },
		"others":  func() error { return os.Chmod(value, 0o644) },
	} {
		require.NoError(t, change(), n)
		row := w.rows()["route"][0]
		require.Equal(t, Fail, row.Status, n)
		require.Contains(t, row.Detail, "nothing starts of it: secret token does not open", n)
		require.Equal(t, "lend connector secret set tool token --connection default < FILE", row.Fix, n)
	}
}

func TestSecretsWithoutTheirKey(t *testing.T) {
	t.Parallel()
	w, root, _ := account(t, "keyfile", nil)
	dir := filepath.Join(w.places.Connections, "sealed")
	files, err := filepath.Glob(filepath.Join(dir, "key-*.secret"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	require.NoError(t, os.Chmod(files[0], 0o644))
	require.Equal(t, PrivateFix(dir), w.rows()["route"][0].Fix)
	require.NoError(t, os.Chmod(files[0], 0o600))
	require.NoError(t, os.Chmod(filepath.Join(dir, "key.json"), 0o644))
	require.Equal(t, PrivateFix(dir), w.rows()["secrets-key"][0].Fix)
	if os.Geteuid() > 0 {
		require.NoError(t, os.Chmod(filepath.Join(dir, "key.json"), 0))
		require.Equal(t, PrivateFix(dir), w.rows()["secrets-key"][0].Fix, "what only its mode keeps shut is not lost")
	}
	require.NoError(t, os.Chmod(filepath.Join(dir, "key.json"), 0o600))
	require.NoError(t, os.Chmod(dir, 0o755))
	require.Equal(t, PrivateFix(w.places.Connections), w.rows()["secrets-key"][0].Fix)
	require.NoError(t, os.Chmod(dir, 0o700))
	require.NoError(t, os.WriteFile(files[0], []byte("lend-key 1\n"+strings.Repeat("ab", 32)+"\n"), 0o600))
	for _, n := range []string{"route", "secrets-key"} {
		row := w.rows()[n][0]
		require.Equal(t, Fail, row.Status, n)
		require.Contains(t, row.Detail, "does not open the data key")
		require.Contains(t, row.Fix, "mv "+dir+" "+dir+".lost, then lend init")
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "key.json"), []byte("{"), 0o600))
	require.Equal(t, Fail, w.rows()["route"][0].Status)
	require.Contains(t, w.rows()["secrets-key"][0].Fix, "restore "+dir+" from a copy")
	require.Equal(t, KeyFix(root), w.rows()["secrets-key"][0].Fix)
}

// An age identity that is copied with the secrets is as weak as a key file.
func TestAgeIdentityBesideTheSecrets(t *testing.T) {
	t.Parallel()
	identity, err := age.GenerateX25519Identity()
	require.NoError(t, err)
	w, root, _ := account(t, "keyfile", nil)
	use := func(dir string) (string, Row) {
		t.Helper()
		file := filepath.Join(dir, "identity.txt")
		require.NoError(t, os.WriteFile(file, []byte(identity.String()+"\n"), 0o600))
		require.NoError(t, root.Sealed().Rewrap(sealed.Source{Kind: sealed.Age, Identity: file}))
		return file, w.rows()["secrets-key"][0]
	}
	_, row := use(t.TempDir())
	require.Equal(t, Pass, row.Status)
	file, row := use(filepath.Dir(w.places.Connections))
	require.Equal(t, Warn, row.Status)
	require.Contains(t, row.Detail, "beside the secrets")
	require.NoError(t, os.Chmod(file, 0o644))
	require.Equal(t, "chmod 600 "+file, w.rows()["secrets-key"][0].Fix)
	require.NoError(t, os.Remove(file))
	require.NoError(t, os.Mkdir(file, 0o700))
	require.Contains(t, w.rows()["secrets-key"][0].Fix, "bring back "+file)
}

// A passphrase that was not given to this process tells nothing about the gateway's; one
// that was has to be the one.
func TestSecretsOfAPassphrase(t *testing.T) {
	t.Parallel()
	right := func(bool) ([]byte, error) { return []byte("correct-horse"), nil }
	w, _, _ := account(t, "passphrase", right)
	rows := w.rows()
	for _, n := range []string{"route", "secrets-key"} {
		row := rows[n][0]
		require.Equal(t, Warn, row.Status, n)
		require.Contains(t, row.Detail, "not given")
		require.Equal(t, "LEND_PASSPHRASE_FD=3 lend doctor 3< FILE", row.Fix)
	}
	w.places.Ask = right
	rows = w.rows()
	require.Equal(t, Pass, rows["route"][0].Status)
	require.Equal(t, Row{Name: "secrets-key", Status: Pass, Detail: "the key comes from passphrase"}, rows["secrets-key"][0])
	w.places.Ask = func(bool) ([]byte, error) { return []byte("incorrect-horse"), nil }
	rows = w.rows()
	for _, n := range []string{"route", "secrets-key"} {
		require.Equal(t, Fail, rows[n][0].Status, n)
	}
	w.places.Ask = func(bool) ([]byte, error) { return nil, errors.New("the descriptor is closed") }
	require.Contains(t, w.rows()["secrets-key"][0].Detail, "the descriptor is closed")
}

// What a start could not copy keeps it from starting, unless it works in the home itself.
func TestHomeThatIsNotCopied(t *testing.T) {
	t.Parallel()
	w, root, c := account(t, "keyfile", nil)
	big := filepath.Join(c.Home(), "big")
	require.NoError(t, os.WriteFile(big, nil, 0o600))
	require.NoError(t, os.Truncate(big, home.MaxBytes))
	require.Equal(t, Pass, w.rows()["route"][0].Status)
	require.NoError(t, os.Truncate(big, home.MaxBytes+1))
	row := w.rows()["route"][0]
	require.Equal(t, Fail, row.Status)
	require.Contains(t, row.Detail, "nothing starts of it: check home: more than 16777216 bytes")
	require.Contains(t, row.Fix, "or lend connector setting home tool shared --connection default")
	all, err := root.List(w.key)
	require.NoError(t, err)
	require.NoError(t, all[0].SetSharedHome(true))
	require.Equal(t, Pass, w.rows()["route"][0].Status)
	require.NoError(t, c.SetSharedHome(false))
	require.NoError(t, os.Remove(big))
	require.NoError(t, os.Symlink("/etc", big))
	row = w.rows()["route"][0]
	require.Equal(t, Fail, row.Status)
	require.Contains(t, row.Detail, "leads out of the home")
	require.Contains(t, row.Fix, "remove that link from "+filepath.Dir(c.Home())+", or lend connector setting home tool shared --connection default")
	var unready *UnreadyError
	require.ErrorAs(t, Uncopied(t.Context(), c), &unready)
	require.ErrorIs(t, unready, home.ErrLink)
	require.Equal(t, row.Fix, unready.Fix)
	require.NoError(t, c.SetSharedHome(true))
	require.NoError(t, Uncopied(t.Context(), c))
}

func TestSettingsThatNobodyCanRead(t *testing.T) {
	t.Parallel()
	w, _, c := account(t, "keyfile", nil)
	file := filepath.Join(filepath.Dir(c.Home()), "connection.json")
	require.NoError(t, os.WriteFile(file, []byte("{"), 0o600))
	row := w.rows()["route"][0]
	require.Equal(t, Fail, row.Status)
	require.Contains(t, row.Fix, "mv "+file+" "+file+".damaged")
}
