//go:build unix

package ownerfile

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
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
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	other, err := x509.MarshalPKCS8PrivateKey(ec)
	require.NoError(t, err)
	for want, der := range map[string][]byte{"its key cannot be read": []byte("no PKCS 8"), "its key is of another type": other} {
		path := filepath.Join(private(t), "key.pem")
		require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: keyBlock, Bytes: der}), 0o600))
		key, err := LoadKey(path)
		require.ErrorIs(t, err, ErrKeyFormat)
		require.ErrorContains(t, err, want)
		require.Nil(t, key)
	}
}

// ownerless is what a system says of a file that tells no owner.
type ownerless struct{ os.FileInfo }

func (ownerless) Sys() any { return nil }

func TestNoOwnerIsNotTheOwner(t *testing.T) {
	path := filepath.Join(private(t), "a")
	file(t, path, 0o600)
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.NoError(t, checkAccess(path, nil, info, Private))
	require.ErrorContains(t, checkAccess(path, nil, ownerless{info}, Private), "has no owner that can be read")

	require.NoError(t, os.Symlink(path, path+".link"))
	info, err = os.Lstat(path + ".link")
	require.NoError(t, err)
	require.NoError(t, checkLink(path, info))
	require.ErrorContains(t, checkLink(path, ownerless{info}), "the symbolic link belongs to another user")

	info, err = os.Stat(filepath.Dir(path))
	require.NoError(t, err)
	require.NoError(t, checkDirectory(path, info))
	require.ErrorContains(t, checkDirectory(path, ownerless{info}), "the directory belongs to another user")
}

// TestSizeIsLookedAtBeforeTheBytes: what is too large is not read.
func TestSizeIsLookedAtBeforeTheBytes(t *testing.T) {
	path := filepath.Join(private(t), "a")
	file(t, path, 0o600)
	require.NoError(t, os.Truncate(path, 11))
	_, err := Read(path, Private, 10)
	require.ErrorIs(t, err, ErrUnsafe)
	require.ErrorContains(t, err, "is larger than 10 bytes: it has 11")
}

func TestFileThatIsClosedIsNotRead(t *testing.T) {
	path := filepath.Join(private(t), "a")
	file(t, path, 0o600)
	f, err := os.Open(path)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	_, err = readOpen(path, f, Private, 10)
	require.ErrorIs(t, err, os.ErrClosed)
}
