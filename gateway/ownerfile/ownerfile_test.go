//go:build unix

package ownerfile

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func private(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o700))
	return dir
}

func TestKeyRoundTrip(t *testing.T) {
	path := filepath.Join(private(t), "key.pem")
	made, err := CreateKey(path)
	require.NoError(t, err)
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	read, err := LoadKey(path)
	require.NoError(t, err)
	require.Equal(t, made, read)
	_, err = CreateKey(path)
	require.ErrorIs(t, err, os.ErrExist)
	again, err := LoadKey(path)
	require.NoError(t, err)
	require.Equal(t, made, again, "the first key is untouched")
	entries, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, entries, 1, "no temporary file is left")
}

func TestReadRefusesUnsafeFiles(t *testing.T) {
	cases := map[string]struct {
		make func(t *testing.T, path string)
		a    Access
		want string
	}{
		"group-may-read": {func(t *testing.T, p string) { t.Helper(); file(t, p, 0o640) }, Private, "others may read it (mode 0640)"},
		"world-may-read": {func(t *testing.T, p string) { t.Helper(); file(t, p, 0o604) }, Private, "others may read it"},
		"group-writable": {func(t *testing.T, p string) { t.Helper(); file(t, p, 0o620) }, Trusted, "others may write it (mode 0620)"},
		"world-writable": {func(t *testing.T, p string) { t.Helper(); file(t, p, 0o602) }, Trusted, "others may write it"},
		"link": {func(t *testing.T, p string) {
			t.Helper()
			file(t, p+".real", 0o600)
			require.NoError(t, os.Symlink(p+".real", p))
		}, Private, "symbolic link"},
		"directory": {func(t *testing.T, p string) { t.Helper(); require.NoError(t, os.Mkdir(p, 0o700)) }, Private, "not a regular file"},
		"pipe":      {func(t *testing.T, p string) { t.Helper(); require.NoError(t, syscall.Mkfifo(p, 0o600)) }, Private, "not a regular file"},
		"too-large": {func(t *testing.T, p string) {
			t.Helper()
			require.NoError(t, os.WriteFile(p, make([]byte, 101), 0o600))
		}, Private, "larger than 100 bytes"},
		"open-directory": {func(t *testing.T, p string) {
			t.Helper()
			file(t, p, 0o600)
			require.NoError(t, os.Chmod(filepath.Dir(p), 0o777))
		}, Trusted, "others may write the directory"},
	}
	for title, c := range cases {
		t.Run(title, func(t *testing.T) {
			path := filepath.Join(private(t), "f")
			c.make(t, path)
			b, err := Read(path, c.a, 100)
			require.ErrorIs(t, err, ErrUnsafe)
			require.ErrorContains(t, err, c.want)
			require.Nil(t, b)
		})
	}
}

func TestReadTakesSafeFiles(t *testing.T) {
	path := filepath.Join(private(t), "f")
	file(t, path, 0o644)
	b, err := Read(path, Trusted, 100)
	require.NoError(t, err)
	require.Equal(t, "content", string(b))
	require.NoError(t, os.Chmod(path, 0o600))
	b, err = Read(path, Private, 7)
	require.NoError(t, err)
	require.Equal(t, "content", string(b))
}

func TestReadMissing(t *testing.T) {
	_, err := Read(filepath.Join(private(t), "f"), Private, 1)
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestReplace(t *testing.T) {
	path := filepath.Join(private(t), "f")
	for _, content := range []string{"one", "", "two"} {
		require.NoError(t, Replace(path, []byte(content)))
		b, err := Read(path, Private, 10)
		require.NoError(t, err)
		require.Equal(t, content, string(b))
	}
	require.NoError(t, os.Mkdir(path+".d", 0o700))
	require.Error(t, Replace(path+".d", []byte("x")), "a directory is not replaced")
	entries, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, entries, 2, "no temporary file is left")
}

func TestLoadKeyRefusesOtherContent(t *testing.T) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	good := pem.EncodeToMemory(&pem.Block{Type: keyBlock, Bytes: der})
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	rsaDER, err := x509.MarshalPKCS8PrivateKey(rsaKey)
	require.NoError(t, err)
	cases := map[string][]byte{
		"empty":       nil,
		"text":        []byte("secret"),
		"two-keys":    append(append([]byte{}, good...), good...),
		"tail":        append(append([]byte{}, good...), "tail"...),
		"cut":         good[:len(good)/2],
		"other-block": pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}),
		"rsa":         pem.EncodeToMemory(&pem.Block{Type: keyBlock, Bytes: rsaDER}),
	}
	for title, content := range cases {
		t.Run(title, func(t *testing.T) {
			path := filepath.Join(private(t), "k")
			require.NoError(t, os.WriteFile(path, content, 0o600))
			k, err := LoadKey(path)
			require.ErrorIs(t, err, ErrKeyFormat)
			require.Nil(t, k)
			require.NotContains(t, err.Error(), "secret")
		})
	}
}

func file(t *testing.T, path string, mode os.FileMode) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte("content"), 0o600))
	require.NoError(t, os.Chmod(path, mode))
}

func TestCheckDirectory(t *testing.T) {
	dir := private(t)
	require.NoError(t, CheckDirectory(dir))
	require.NoError(t, os.Chmod(dir, 0o777|os.ModeSticky))
	require.NoError(t, CheckDirectory(dir))
	require.NoError(t, os.Chmod(dir, 0o770))
	require.ErrorIs(t, CheckDirectory(dir), ErrUnsafe)
	require.ErrorIs(t, CheckDirectory(filepath.Join(dir, "none")), os.ErrNotExist)
}

func TestFollow(t *testing.T) {
	dir := private(t)
	in := func(p string) string { return filepath.Join(dir, p) }
	file(t, in("real"), 0o600)
	require.NoError(t, os.Mkdir(in("..1"), 0o700))
	file(t, in("..1/policy"), 0o600)
	for link, target := range map[string]string{
		"one": "real", "two": "one", "absolute": in("real"), "..data": "..1", "mounted": "..data/policy", "dangling": "none", "loop": "loop",
	} {
		require.NoError(t, os.Symlink(target, in(link)))
	}
	for path, want := range map[string]string{
		"real": "real", "one": "real", "two": "real", "absolute": "real", "none": "none", "dangling": "none", "mounted": "..data/policy",
	} {
		got, err := Follow(in(path))
		require.NoError(t, err, path)
		require.Equal(t, in(want), got, path)
	}
	b, err := Read(must(Follow(in("mounted"))), Trusted, 100)
	require.NoError(t, err)
	require.NotNil(t, b)

	_, err = Follow(in("loop"))
	require.ErrorIs(t, err, ErrUnsafe)
	require.ErrorContains(t, err, "too many symbolic links")

	open := in("open")
	require.NoError(t, os.Mkdir(open, 0o700))
	require.NoError(t, os.Symlink(in("real"), filepath.Join(open, "link")))
	require.NoError(t, os.Chmod(open, 0o777))
	_, err = Follow(filepath.Join(open, "link"))
	require.ErrorIs(t, err, ErrUnsafe, "others could replace the link")
	require.NoError(t, os.Chmod(open, os.ModeSticky|0o777))
	_, err = Follow(filepath.Join(open, "link"))
	require.NoError(t, err, "in a sticky directory they could not")
	if os.Geteuid() == 0 {
		require.NoError(t, os.Lchown(filepath.Join(open, "link"), 4321, 4321))
		_, err = Follow(filepath.Join(open, "link"))
		require.ErrorIs(t, err, ErrUnsafe)
		require.ErrorContains(t, err, "belongs to another user")
	}
}

func must(s string, err error) string {
	if err != nil {
		panic(err)
	}
	return s
}
