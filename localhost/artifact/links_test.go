package artifact

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Links are left out only where that was asked for, never followed, and counted.
func TestSkipLinks(t *testing.T) {
	t.Parallel()
	archive := func(links int, kind byte) string {
		var b bytes.Buffer
		g := gzip.NewWriter(&b)
		w := tar.NewWriter(g)
		require.NoError(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "real", Mode: 0o755, Size: 1}))
		_, err := w.Write([]byte("x"))
		require.NoError(t, err)
		for range links {
			require.NoError(t, w.WriteHeader(&tar.Header{Typeflag: kind, Name: "link", Linkname: "/etc/passwd"}))
		}
		require.NoError(t, w.Close())
		require.NoError(t, g.Close())
		at := filepath.Join(t.TempDir(), "a.tgz")
		require.NoError(t, os.WriteFile(at, b.Bytes(), 0o600))
		return at
	}
	limits := ConnectorLimits()
	limits.Entries = 3
	into := func(src string, skip bool) (string, error) {
		dst := filepath.Join(t.TempDir(), "tree")
		t.Cleanup(func() { _ = os.Chmod(dst, 0o700) })
		return dst, Import(t.Context(), src, dst, Options{Limits: limits, SkipLinks: skip})
	}
	_, err := into(archive(1, tar.TypeSymlink), false)
	require.ErrorContains(t, err, "symbolic link")
	_, err = into(archive(1, tar.TypeLink), true)
	require.ErrorContains(t, err, "hard link")
	_, err = into(archive(4, tar.TypeSymlink), true)
	require.ErrorContains(t, err, "more than 3 entries")
	dst, err := into(archive(2, tar.TypeSymlink), true)
	require.NoError(t, err)
	entries, err := os.ReadDir(dst)
	require.NoError(t, err)
	require.Len(t, entries, 1)
}
