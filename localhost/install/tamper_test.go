package install

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOneByte changes one byte of everything that a start depends on.
func TestOneByte(t *testing.T) {
	t.Parallel()
	for n, where := range map[string]func(l *Launch) string{
		"script":       func(l *Launch) string { return l.Prefix[0] },
		"dependency":   func(l *Launch) string { return filepath.Join(filepath.Dir(l.Prefix[0]), "..", "dep", "index.js") },
		"package-file": func(l *Launch) string { return filepath.Join(filepath.Dir(l.Prefix[0]), "package.json") },
		"interpreter":  func(l *Launch) string { return l.Path },
		"manifest":     func(l *Launch) string { return filepath.Join(l.ContractDir, "connector-manifest.json") },
		"lock":         func(l *Launch) string { return filepath.Join(l.ContractDir, "package-lock.json") },
	} {
		t.Run(n, func(t *testing.T) {
			t.Parallel()
			s, _ := npmStore(t)
			r := add(t, s, hello().dir(t))
			l, err := s.Launch(r)
			require.NoError(t, err)
			require.NoError(t, l.Verify())
			flip(t, where(l), 5)
			require.ErrorIs(t, l.Verify(), ErrTampered)
			require.ErrorIs(t, s.Verify(t.Context(), r.Manifest.Key, r.Manifest.Version), ErrTampered)
			_, err = s.Launch(r)
			require.ErrorIs(t, err, ErrTampered)
			_, err = openStore(t, Config{Dir: s.cfg.Dir}).Launch(r)
			require.ErrorIs(t, err, ErrTampered, "a new process sees it too")
			require.NoError(t, l.Close())
		})
	}
	t.Run("native", func(t *testing.T) {
		t.Parallel()
		s := openStore(t, Config{})
		src := printer("1.0.0").dir(t)
		r := add(t, s, src)
		l, err := s.Launch(r)
		require.NoError(t, err)
		flip(t, l.Path, 9)
		require.ErrorIs(t, l.Verify(), ErrTampered)
		require.NoError(t, l.Close())

		require.Equal(t, r, add(t, s, src), "adding it again repairs it")
		l, err = s.Launch(r)
		require.NoError(t, err)
		require.NoError(t, l.Verify())
		require.NoError(t, l.Close())
	})
}

// Execution snapshots: whatever is done to the source after it was added.
func TestExecutionSnapshotsAreNotTheSource(t *testing.T) {
	t.Parallel()
	s := openStore(t, Config{})
	src := printer("1.0.0").dir(t)
	l, err := s.Launch(add(t, s, src))
	require.NoError(t, err)
	defer l.Close()
	require.NoError(t, os.WriteFile(filepath.Join(src, "bin", "printer"), []byte("other"), 0o755))
	require.NoError(t, l.Verify())
	b, err := os.ReadFile(l.Path)
	require.NoError(t, err)
	require.Equal(t, binary, string(b))
}

func editReceipt(t *testing.T, s *Store, from, to string) {
	t.Helper()
	p := filepath.Join(s.cfg.Dir, "connectors", "printer", "1.0.0", "receipt.json")
	b, err := os.ReadFile(p)
	require.NoError(t, err)
	require.Contains(t, string(b), from)
	require.NoError(t, os.WriteFile(p, []byte(strings.Replace(string(b), from, to, 1)), 0o600))
}

func TestReceiptIsChecked(t *testing.T) {
	t.Parallel()
	for n, c := range map[string]struct{ from, to, want string }{
		"format":    {`"format": 1`, `"format": 2`, "written by another version of lend"},
		"unknown":   {`"format": 1`, `"format": 1, "root": "/"`, "unknown field"},
		"escape":    {`"directory": "`, `"directory": "../`, "belongs to something else"},
		"other-key": {`"name": "printer"`, `"name": "other"`, "belongs to something else"},
		"digest":    {`"releaseDigest": "`, `"releaseDigest": "0`, "installed files were changed"},
		"not-json":  {`{`, `[`, "read receipt"},
	} {
		t.Run(n, func(t *testing.T) {
			t.Parallel()
			s := openStore(t, Config{})
			r := add(t, s, printer("1.0.0").dir(t))
			other := add(t, s, printer("2.0.0").dir(t))
			editReceipt(t, s, c.from, c.to)
			_, err := s.Release(r.Manifest.Key, r.Manifest.Version)
			require.ErrorContains(t, err, c.want)
			_, err = s.Launch(r)
			require.Error(t, err)
			all, damaged, err := s.Releases()
			require.NoError(t, err)
			require.Equal(t, []Release{other}, all, "the others are still there")
			require.Len(t, damaged, 1)
			require.ErrorContains(t, damaged[0], c.want)
			_, err = s.Add(t.Context(), Source{Path: printer("1.0.0").dir(t), Replace: n == "format" || n == "digest"}, nil)
			require.NoError(t, err, "adding it again mends it; if it may be another release, the owner has to say so")
			require.Len(t, releases(t, s), 2)
		})
	}
}

// A receipt that names a tree with another digest is not believed.
func TestReceiptIsNoAuthority(t *testing.T) {
	t.Parallel()
	s := openStore(t, Config{})
	r := add(t, s, printer("1.0.0").dir(t))
	editReceipt(t, s, `"artifactDigest": "`+jsonOf(t, filepath.Join(s.cfg.Dir, "connectors", "printer", "1.0.0", "receipt.json"))["artifactDigest"].(string), `"artifactDigest": "`+strings.Repeat("0", 64))
	_, err := s.Launch(r)
	require.ErrorIs(t, err, ErrTampered)
}

func TestLaunchAsksForTheExactRelease(t *testing.T) {
	t.Parallel()
	s := openStore(t, Config{})
	r := add(t, s, printer("1.0.0").dir(t))
	r.Digest = strings.Repeat("0", 64)
	_, err := s.Launch(r)
	require.ErrorIs(t, err, ErrNotInstalled)
	_, err = s.Launch(Release{})
	require.Error(t, err)
}
