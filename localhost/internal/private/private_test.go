package private

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPrivate(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("modes and links are of unix")
	}
	dir := filepath.Join(t.TempDir(), "d")
	require.NoError(t, Dir(dir))
	require.NoError(t, Dir(dir), "it may be there")
	info, err := os.Stat(dir)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm())
	require.NoError(t, os.Chmod(dir, 0o750))
	require.ErrorIs(t, CheckDir(dir), ErrUnsafe)
	require.NoError(t, os.Chmod(dir, 0o700))
	link := dir + "-link"
	require.NoError(t, os.Symlink(dir, link))
	require.ErrorIs(t, CheckDir(link), ErrUnsafe)

	file := filepath.Join(dir, "f")
	require.NoError(t, os.WriteFile(file, []byte("abc"), 0o600))
	data, err := Read(file, 3)
	require.NoError(t, err)
	require.Equal(t, "abc", string(data))
	_, err = Read(file, 2)
	require.ErrorIs(t, err, ErrTooLarge)
	require.NoError(t, os.Chmod(file, 0o640))
	_, err = Read(file, 3)
	require.ErrorIs(t, err, ErrUnsafe)
	require.NoError(t, os.Symlink(file, file+"-link"))
	_, err = Read(file+"-link", 3)
	require.Error(t, err)
	_, err = Read(dir, 3)
	require.ErrorIs(t, err, ErrUnsafe)
	_, err = Read(filepath.Join(dir, "nothing"), 3)
	require.ErrorIs(t, err, os.ErrNotExist)
}
