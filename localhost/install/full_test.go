package install

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/lendcli/lend/localhost/install/npm"
	"github.com/lendcli/lend/localhost/process"
	"github.com/stretchr/testify/require"
)

// fullStore is a store that fetches from the registry that the environment names.
func fullStore(t *testing.T) *Store {
	t.Helper()
	if os.Getenv("LEND_TEST_FULL") != "1" {
		t.Skip("needs LEND_TEST_FULL=1: it fetches packages from a registry")
	}
	registry := os.Getenv("NPM_CONFIG_REGISTRY")
	require.NotEmpty(t, registry, "set NPM_CONFIG_REGISTRY")
	transport := process.New(process.Config{})
	t.Cleanup(func() { require.NoError(t, transport.Close()) })
	return openStore(t, Config{Registry: registry, CAFile: os.Getenv("SSL_CERT_FILE"), Runner: NewRunner(transport)})
}

// TestRealPackages installs real packages with the managed node and npm, runs them,
// and then changes one byte of each thing that runs.
func TestRealPackages(t *testing.T) {
	t.Parallel()
	s := fullStore(t)
	runtimes, err := s.AddNode(t.Context(), nil)
	require.NoError(t, err)
	require.Len(t, runtimes, 2)

	for _, c := range []struct {
		spec, integrity string
		args            []string
		want            string
	}{
		{
			"json5@2.2.3", "sha512-XmOWe7eyHYH14cLdVPoyg+GOH3rYX++KpzrylJwSW98t3Nk+U8XOl8FWKOgwtzdb8lXGf6zYwDUzeHMWfxasyg==",
			[]string{"--version"},
			"2.2.3\n",
		},
		{
			"semver@7.8.6", "sha512-9lpSSU4Mly3mrtruwLs1eLK6+gzbzqeBFwRNjIjE+9LuDpWdYctrQlQ3ej1Ilgi7gknpsTRnPoLP8DpCHqHIJw==",
			[]string{"-r", ">=1.0.0", "1.2.3", "0.1.0"},
			"1.2.3\n",
		},
	} {
		dir := filepath.Join(t.TempDir(), "connector")
		m, err := s.New(t.Context(), NewConnector{From: "npm:" + c.spec, Dir: dir}, nil)
		require.NoError(t, err)
		require.Equal(t, c.integrity, m.CLI.Package.Integrity)
		lock, err := os.ReadFile(filepath.Join(dir, "package-lock.json"))
		require.NoError(t, err)
		require.NotContains(t, string(lock), "resolved", "a lock names no host")

		r, err := s.Add(t.Context(), Source{Path: dir}, nil)
		require.NoError(t, err)
		l, err := s.Launch(r)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, l.Close()) })
		require.NoError(t, l.Verify())
		out, err := s.cfg.Runner.Run(t.Context(), npm.Command{
			Path: l.Path, Env: l.Env, Dir: l.ContractDir, Args: slices.Concat([]string{"node"}, l.Prefix, c.args),
		})
		require.NoError(t, err)
		require.Equal(t, c.want, string(out))
		require.NoError(t, l.Verify(), "running leaves no trace in what is verified")
		require.NoError(t, s.Verify(t.Context(), r.Manifest.Key, r.Manifest.Version))

		again, err := s.Add(t.Context(), Source{Path: dir}, nil)
		require.NoError(t, err)
		require.Equal(t, r, again)
	}

	json5, err := s.Release(key(t, "json5"), version(t, "2.2.3"))
	require.NoError(t, err)
	l, err := s.Launch(json5)
	require.NoError(t, err)
	defer l.Close()
	flip(t, l.Prefix[0], 40)
	require.ErrorIs(t, l.Verify(), ErrTampered)
	semver, err := s.Release(key(t, "semver"), version(t, "7.8.6"))
	require.NoError(t, err)
	l2, err := s.Launch(semver)
	require.NoError(t, err)
	defer l2.Close()
	require.NoError(t, l2.Verify())
	flip(t, l2.Path, 1<<20)
	require.ErrorIs(t, l2.Verify(), ErrTampered, "the interpreter")
	require.ErrorIs(t, s.Verify(t.Context(), key(t, "semver"), version(t, "7.8.6")), ErrTampered)
}
