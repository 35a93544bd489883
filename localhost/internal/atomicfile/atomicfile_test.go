package atomicfile

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWriteReplaces(t *testing.T) {
	t.Parallel()
	p := filepath.Join(t.TempDir(), "f")
	for _, text := range []string{"one", "two"} {
		require.NoError(t, Write(p, []byte(text)))
		b, err := Read(p, 10)
		require.NoError(t, err)
		require.Equal(t, text, string(b))
	}
	list, err := os.ReadDir(filepath.Dir(p))
	require.NoError(t, err)
	require.Len(t, list, 1, "nothing is left beside it")
	info, err := os.Stat(p)
	require.NoError(t, err)
	require.Zero(t, info.Mode().Perm()&0o077)
}

func TestWriteFailureLeavesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := filepath.Join(dir, "d")
	require.NoError(t, os.Mkdir(p, 0o700))
	require.Error(t, Write(p, []byte("x")), "a directory is in its place")
	list, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.Error(t, Write(filepath.Join(dir, "absent", "f"), nil))
}

func TestReadBounds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := filepath.Join(dir, "f")
	require.NoError(t, Write(p, []byte("12345")))
	_, err := Read(p, 4)
	require.ErrorContains(t, err, "larger than 4 bytes")
	_, err = Read(dir, 4)
	require.Error(t, err)
	_, err = Read(filepath.Join(dir, "absent"), 4)
	require.ErrorIs(t, err, os.ErrNotExist)
}
