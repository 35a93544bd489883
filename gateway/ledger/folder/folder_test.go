package folder

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/gateway/ledger/segment"
)

var testTime = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func made(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "a", "ledger")
	unlock, empty, err := Enter(dir)
	require.NoError(t, err)
	require.True(t, empty)
	require.NoError(t, Folder{Path: dir}.Create(testTime))
	require.NoError(t, Folder{Path: dir}.TakeReserve())
	require.NoError(t, unlock())
	return dir
}

// spec: LEDGER-1, LEDGER-12
func TestCreateAndEnter(t *testing.T) {
	t.Parallel()
	dir := made(t)
	unlock, empty, err := Enter(dir)
	require.NoError(t, err)
	require.False(t, empty)
	_, _, err = Enter(dir)
	require.ErrorIs(t, err, ErrLocked)
	require.NoError(t, unlock())

	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	var names []string
	for _, e := range entries {
		info, err := e.Info()
		require.NoError(t, err)
		if runtime.GOOS != "windows" {
			require.Equal(t, os.FileMode(0o600), info.Mode().Perm(), e.Name())
		}
		names = append(names, e.Name())
	}
	require.Subset(t, names, []string{"00000000000000000000.log", "checkpoint", "checkpoint.key", "digest.key", "reserve"})
	require.NotContains(t, names, "creating")

	k, err := ReadKeys(dir)
	require.NoError(t, err)
	require.Equal(t, k.Signer.Name(), k.VerifierKey[:len(k.Signer.Name())])
	other, err := ReadKeys(made(t))
	require.NoError(t, err)
	require.NotEqual(t, k.Digest(nil), other.Digest(nil))
	require.NotEqual(t, k.Operation(nil, nil, []byte("a"), []byte("b")), k.Operation(nil, nil, []byte("ab"), nil))
	require.NotEqual(t, k.Scope(nil, nil, []byte("a")), k.Operation(nil, nil, []byte("a"), nil))
	require.NotEqual(t, k.Lease(nil, []byte("a")), k.Scope(nil, nil, []byte("a")))
}

// spec: LEDGER-12
func TestOthersMayHaveNoAccess(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("needs Unix modes")
	}
	for _, mode := range []os.FileMode{0o640, 0o604, 0o660, 0o622, 0o777} {
		dir := made(t)
		for _, file := range []string{"00000000000000000000.log", "digest.key", "checkpoint.key", "checkpoint", "reserve"} {
			require.NoError(t, os.Chmod(filepath.Join(dir, file), mode))
			_, _, err := Enter(dir)
			require.ErrorContains(t, err, "others may not have access")
			require.NoError(t, os.Chmod(filepath.Join(dir, file), 0o600))
		}
		require.NoError(t, os.Chmod(dir, mode|0o100))
		_, _, err := Enter(dir)
		require.ErrorContains(t, err, "others may not have access")
	}
}

// spec: LEDGER-28
func TestWhatIsNoLedger(t *testing.T) {
	t.Parallel()
	for label, c := range map[string]struct {
		change func(t *testing.T, dir string)
		want   error
	}{
		"log-removed": {func(t *testing.T, dir string) { t.Helper(); remove(t, dir, segmentName(0)) }, ErrLost},
		"only-a-key":  {func(t *testing.T, dir string) { t.Helper(); remove(t, dir, segmentName(0), macName, checkpointName) }, ErrLost},
		"unknown-segment": {func(t *testing.T, dir string) {
			t.Helper()
			write(t, dir, "100.log")
		}, segment.ErrCorrupt},
		"log-is-a-link": {func(t *testing.T, dir string) {
			t.Helper()
			require.NoError(t, os.Rename(filepath.Join(dir, segmentName(0)), filepath.Join(dir, "x")))
			require.NoError(t, os.Symlink("x", filepath.Join(dir, segmentName(0))))
		}, nil},
		"a-directory-in-it": {func(t *testing.T, dir string) {
			t.Helper()
			require.NoError(t, os.Mkdir(filepath.Join(dir, "x"), 0o700))
		}, nil},
		"dir-is-a-link": {func(t *testing.T, dir string) {
			t.Helper()
			require.NoError(t, os.Rename(dir, dir+".real"))
			require.NoError(t, os.Symlink(dir+".real", dir))
		}, nil},
		"dir-is-a-file": {func(t *testing.T, dir string) {
			t.Helper()
			require.NoError(t, os.RemoveAll(dir))
			require.NoError(t, os.WriteFile(dir, nil, 0o600))
		}, nil},
	} {
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			dir := made(t)
			c.change(t, dir)
			_, _, err := Enter(dir)
			require.Error(t, err)
			if c.want != nil {
				require.ErrorIs(t, err, c.want)
			}
			_, _, again := Enter(dir)
			require.NotErrorIs(t, again, ErrLocked, "what is refused is let go")
		})
	}
}

func remove(t *testing.T, dir string, names ...string) {
	t.Helper()
	for _, n := range names {
		require.NoError(t, os.Remove(filepath.Join(dir, n)))
	}
}

func write(t *testing.T, dir, base string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(dir, base), nil, 0o600))
}

// A ledger whose making was interrupted is made again, wherever that was.
func TestHalfMade(t *testing.T) {
	t.Parallel()
	order := []string{macName, signerName, checkpointName, segmentName(0)}
	for n := range len(order) + 1 {
		dir := made(t)
		before, err := ReadKeys(dir)
		require.NoError(t, err)
		write(t, dir, creatingName)
		write(t, dir, macName+".new")
		remove(t, dir, order[n:]...)
		unlock, empty, err := Enter(dir)
		require.NoError(t, err)
		require.True(t, empty, "after %d files", n)
		require.NoError(t, Folder{Path: dir}.Create(testTime))
		require.NoError(t, unlock())
		_, empty, err = Enter(dir)
		require.NoError(t, err)
		require.False(t, empty)
		after, err := ReadKeys(dir)
		require.NoError(t, err)
		require.NotEqual(t, before.VerifierKey, after.VerifierKey)
	}
}

// spec: LEDGER-11
func TestKeyFiles(t *testing.T) {
	t.Parallel()
	for label, c := range map[string]struct{ file, text string }{
		"short-mac":  {macName, "short"},
		"long":       {macName, string(make([]byte, segment.MaxCheckpoint+1))},
		"no-signer":  {signerName, ""},
		"not-a-key":  {signerName, "PRIVATE+KEY+a+b+c\n"},
		"public-key": {signerName, "lend/ledger/00+deadbeef+AAAA\n"},
	} {
		dir := made(t)
		require.NoError(t, os.WriteFile(filepath.Join(dir, c.file), []byte(c.text), 0o600))
		_, err := ReadKeys(dir)
		require.ErrorIs(t, err, segment.ErrCorrupt, label)
		remove(t, dir, c.file)
		_, err = ReadKeys(dir)
		require.ErrorIs(t, err, segment.ErrCorrupt, label)
	}
	_, err := verifierOf("PRIVATE+KEY+a+b")
	require.Error(t, err)
}

// spec: LEDGER-24
func TestReserve(t *testing.T) {
	t.Parallel()
	dir := made(t)
	path := filepath.Join(dir, reserveName)
	before, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Len(t, before, reserveSize)
	require.NoError(t, Folder{Path: dir}.TakeReserve())
	after, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, before, after, "left alone if it is there")
	require.NoError(t, os.Truncate(path, 10))
	require.NoError(t, Folder{Path: dir}.TakeReserve())
	require.NoError(t, Folder{Path: dir}.GiveReserve())
	require.NoFileExists(t, path)
	require.Error(t, Folder{Path: dir}.GiveReserve())
}

func TestTryRoom(t *testing.T) {
	t.Parallel()
	dir := made(t)
	free, ok := freeBytes(dir)
	require.True(t, ok)
	require.Positive(t, free)
	_, ok = freeBytes(filepath.Join(dir, "none"))
	require.False(t, ok)
	for _, reserved := range []bool{true, false} {
		require.NoError(t, Folder{Path: dir}.TryRoom(reserved))
		for _, at := range []string{"create", "write", "remove"} {
			broken := errors.New("broken")
			d := Folder{Path: dir, Step: func(what, base string) error {
				if what == at && base == "room.new" {
					return broken
				}
				return nil
			}}
			require.ErrorIs(t, d.TryRoom(reserved), broken, at)
		}
		require.NoError(t, Folder{Path: dir}.TryRoom(reserved), "what is left is no hindrance")
		require.NoFileExists(t, filepath.Join(dir, "room.new"))
	}
}

func TestFile(t *testing.T) {
	t.Parallel()
	dir := made(t)
	f, err := Open(dir, 0, os.O_RDWR)
	require.NoError(t, err)
	size, err := f.Size()
	require.NoError(t, err)
	require.Positive(t, size)
	require.NoError(t, f.Datasync())
	require.True(t, f.Linked())
	if runtime.GOOS != "windows" {
		remove(t, dir, segmentName(0))
		require.False(t, f.Linked())
	}
	require.NoError(t, f.Close())
	require.Error(t, f.Datasync())
	require.False(t, f.Linked())
	_, err = f.Size()
	require.Error(t, err)
	_, err = Open(filepath.Join(dir, "none"), 0, os.O_RDWR)
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = ReadCheckpoint(filepath.Join(dir, "none"))
	require.ErrorIs(t, err, segment.ErrCorrupt)
}
