package connection

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/localhost/sealed"
)

func writePlain(t *testing.T, c *Connection, secret, data string) {
	t.Helper()
	require.NoError(t, privateDir(c.plainDir()))
	require.NoError(t, os.WriteFile(c.plainPath(secret), []byte(data), 0o600))
}

// TestPlainSecretsOfEarlierVersions: refused until they are sealed, once.
func TestPlainSecretsOfEarlierVersions(t *testing.T) {
	t.Parallel()
	d := Declared{Secrets: []Declaration{{Name: "token", Variable: "GH_TOKEN"}}}
	r := openRoot(t)
	c := create(t, r)
	writePlain(t, c, "token", plainHeader+canary)
	all, err := c.Secrets(d)
	require.NoError(t, err)
	require.True(t, all[0].Set)
	_, err = c.Environment(d, nil, nil)
	require.ErrorIs(t, err, ErrPlain)
	require.NotContains(t, err.Error(), canary)

	n, err := r.SealPlain()
	require.NoError(t, err)
	require.Equal(t, 1, n)
	env, err := c.Environment(d, nil, nil)
	require.NoError(t, err)
	require.Contains(t, env, "GH_TOKEN="+canary)
	require.NoFileExists(t, c.plainPath("token"))
	n, err = r.SealPlain()
	require.NoError(t, err)
	require.Zero(t, n)

	// Stopped between the two steps, or set since: what is sealed counts.
	writePlain(t, c, "token", plainHeader+"older")
	env, err = c.Environment(d, nil, nil)
	require.NoError(t, err)
	require.Contains(t, env, "GH_TOKEN="+canary)
	_, err = r.SealPlain()
	require.NoError(t, err)
	env, err = c.Environment(d, nil, nil)
	require.NoError(t, err)
	require.Contains(t, env, "GH_TOKEN="+canary)
	require.NoFileExists(t, c.plainPath("token"))

	// Setting or deleting it takes the old file with it.
	writePlain(t, c, "token", plainHeader+"older")
	require.NoError(t, c.SetSecret(d, label(t, "token"), "", strings.NewReader("newer")))
	require.NoFileExists(t, c.plainPath("token"))
	require.NoError(t, c.DeleteSecret(label(t, "token")))
	writePlain(t, c, "token", plainHeader+"older")
	require.NoError(t, c.DeleteSecret(label(t, "token")))
	require.NoFileExists(t, c.plainPath("token"))

	for _, bad := range []string{"", canary, plainHeader, "lend-secret 2 sealed\n" + canary} {
		writePlain(t, c, "token", bad)
		_, err := r.SealPlain()
		require.ErrorIs(t, err, ErrInvalid)
		require.NotContains(t, err.Error(), canary)
		require.FileExists(t, c.plainPath("token"))
	}
}

// TestSecretsAreLockedWithoutTheirSource: no environment is made, so nothing starts.
func TestSecretsAreLockedWithoutTheirSource(t *testing.T) {
	t.Parallel()
	d := Declared{Secrets: []Declaration{{Name: "token", Variable: "GH_TOKEN"}}}
	dir := filepath.Join(t.TempDir(), "connections")
	r, err := Open(dir)
	require.NoError(t, err)
	c := create(t, r)
	require.ErrorIs(t, c.SetSecret(d, label(t, "token"), "", strings.NewReader(canary)), sealed.ErrNoSource)
	_, err = c.Environment(d, nil, nil)
	require.NoError(t, err, "a CLI without a secret needs no key")

	asking, err := OpenAsking(dir, func(bool) ([]byte, error) { return []byte("correct horse"), nil })
	require.NoError(t, err)
	require.NoError(t, asking.Sealed().Create(sealed.Source{Kind: sealed.Passphrase}))
	open, err := asking.Get(c.Connector(), c.ID())
	require.NoError(t, err)
	require.NoError(t, open.SetSecret(d, label(t, "token"), "", strings.NewReader(canary)))
	env, err := open.Environment(d, nil, nil)
	require.NoError(t, err)
	require.Contains(t, env, "GH_TOKEN="+canary)
	_, err = c.Environment(d, nil, nil)
	require.ErrorIs(t, err, sealed.ErrLocked)
}

// TestRemovedConnectionLeavesNoSecret: a connection of the same name begins empty.
func TestRemovedConnectionLeavesNoSecret(t *testing.T) {
	t.Parallel()
	d := Declared{Secrets: []Declaration{{Name: "token", Variable: "GH_TOKEN"}}}
	r := openRoot(t)
	c := create(t, r)
	require.NoError(t, c.SetSecret(d, label(t, "token"), "", strings.NewReader(canary)))
	require.NoError(t, r.Remove(c.Connector(), c.ID()))
	require.NoFileExists(t, sealedPath(c, "token"))

	c = create(t, r)
	require.NoError(t, c.SetSecret(d, label(t, "token"), "", strings.NewReader(canary)))
	require.NoError(t, os.RemoveAll(c.dir), "as if somebody else removed it")
	c = create(t, r)
	missing, err := c.Missing(d)
	require.NoError(t, err)
	require.Equal(t, []string{"token"}, missing)
}
