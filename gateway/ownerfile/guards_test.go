//go:build unix

package ownerfile

import (
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// nobody is a user that is not the owner.
const nobody = 65534

// needRoot skips what only root can arrange.
func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can give a file to another user")
	}
}

func TestFilesOfOthersAreRefused(t *testing.T) {
	needRoot(t)
	path := filepath.Join(private(t), "a")
	file(t, path, 0o600)
	require.NoError(t, os.Chown(path, nobody, nobody))
	_, err := Read(path, Private, 100)
	require.ErrorIs(t, err, ErrUnsafe)
	require.ErrorContains(t, err, "belongs to user 65534")
}

func TestDirectoriesOfOthersAreRefused(t *testing.T) {
	needRoot(t)
	dir := filepath.Join(private(t), "d")
	require.NoError(t, os.Mkdir(dir, 0o700))
	path := filepath.Join(dir, "a")
	file(t, path, 0o600)
	require.NoError(t, os.Chown(dir, nobody, nobody))
	_, err := Read(path, Private, 100)
	require.ErrorIs(t, err, ErrUnsafe)
	require.ErrorContains(t, err, "the directory belongs to another user")
}

func TestLinksOfOthersAreNotFollowed(t *testing.T) {
	needRoot(t)
	path := filepath.Join(private(t), "a")
	file(t, path+".real", 0o600)
	require.NoError(t, os.Symlink(path+".real", path))
	got, err := Follow(path)
	require.NoError(t, err)
	require.Equal(t, path+".real", got)
	require.NoError(t, os.Lchown(path, nobody, nobody))
	_, err = Follow(path)
	require.ErrorIs(t, err, ErrUnsafe)
	require.ErrorContains(t, err, "the symbolic link belongs to another user")
}

// TestSizeThatIsNotTold: a file that says that it is empty, and is not.
func TestSizeThatIsNotTold(t *testing.T) {
	path := "/proc/self/status"
	info, err := os.Stat(path)
	if err != nil || info.Size() != 0 {
		t.Skip("there is no such file here")
	}
	_, err = Read(path, Trusted, 10)
	require.ErrorIs(t, err, ErrUnsafe)
	require.ErrorContains(t, err, "larger than 10 bytes")
}

func TestKeyThatIsNotThere(t *testing.T) {
	_, err := LoadKey(filepath.Join(private(t), "none.pem"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestKeyThatIsNoKey(t *testing.T) {
	path := filepath.Join(private(t), "key.pem")
	require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: keyBlock, Bytes: []byte("no PKCS 8")}), 0o600))
	key, err := LoadKey(path)
	require.Error(t, err)
	require.Nil(t, key)
}
