package install

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// small is a file system of its own, of a megabyte.
func small(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, unix.Mount("lend-test", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=1m,mode=0700"))
	t.Cleanup(func() { require.NoError(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	return dir
}

// leave fills the file system of dir but for so many bytes, and returns what gives it
// all back.
func leave(t *testing.T, dir string, free int64) (back func()) {
	t.Helper()
	var stat unix.Statfs_t
	require.NoError(t, unix.Statfs(dir, &stat))
	size := int64(stat.Bavail)*stat.Bsize - free
	require.Positive(t, size)
	at := filepath.Join(dir, "filler")
	require.NoError(t, os.WriteFile(at, []byte(strings.Repeat("x", int(size))), 0o600))
	return func() { require.NoError(t, os.Remove(at)) }
}

// TestFullDiskAtEveryStep gives an update a page more each time, until it has enough:
// so the disk is full at each of its steps. The old release can start each time.
func TestFullDiskAtEveryStep(t *testing.T) {
	t.Parallel()
	if os.Getenv("LEND_TEST_FULL") != "1" {
		t.Skip("needs LEND_TEST_FULL=1, and the right to mount a small tmpfs")
	}
	dir := small(t)
	s := openStore(t, Config{Dir: filepath.Join(dir, "store"), Fetch: webOf(t, "1.0.0", "1.1.0").fetch})
	old := add(t, s, remote(t, "1.0.0").dir(t))
	src := Source{Path: remote(t, "1.1.0").dir(t)}
	const page = 4 << 10
	failures := 0
	for free := int64(0); free < 200*page; free += page {
		back := leave(t, dir, free)
		_, _, err := update(t, s, Replacement{Key: old.Manifest.Key, Source: src})
		if err == nil {
			back()
			break
		}
		require.ErrorIs(t, err, unix.ENOSPC)
		failures++
		require.Equal(t, []string{"1.0.0"}, versions(t, s), "with %d bytes", free)
		starts(t, s, old)
		full, err := Open(Config{Dir: s.cfg.Dir}) // another process, on the full disk
		require.NoError(t, err)
		starts(t, full, old)
		require.NoError(t, full.Verify(t.Context(), old.Manifest.Key, old.Manifest.Version))
		require.NoError(t, full.Close())
		require.Empty(t, staged(t, s))
		require.FileExists(t, filepath.Join(s.cfg.Dir, "downloads", "tool", "current", "archive"))
		back()
		// What was fetched may stay for the next time; here each time begins anew.
		require.NoError(t, os.RemoveAll(filepath.Join(s.cfg.Dir, "downloads", "tool", "candidate")))
	}
	t.Logf("the disk was full at %d steps", failures)
	require.GreaterOrEqual(t, failures, 6)
	require.Equal(t, []string{"1.1.0"}, versions(t, s))
	all := releases(t, s)
	starts(t, s, all[0])
}

// TestFullDiskAtEveryStepOfTheFirst: of a first installation that does not fit, nothing
// is there, and what was there is as it was.
func TestFullDiskAtEveryStepOfTheFirst(t *testing.T) {
	t.Parallel()
	if os.Getenv("LEND_TEST_FULL") != "1" {
		t.Skip("needs LEND_TEST_FULL=1, and the right to mount a small tmpfs")
	}
	dir := small(t)
	s := openStore(t, Config{Dir: filepath.Join(dir, "store"), Fetch: webOf(t, "1.0.0").fetch})
	other := add(t, s, printer("1.0.0").dir(t))
	src := Source{Path: remote(t, "1.0.0").dir(t)}
	const page = 4 << 10
	failures := 0
	for free := int64(0); free < 200*page; free += page {
		back := leave(t, dir, free)
		_, err := s.Add(t.Context(), src, nil)
		if err == nil {
			back()
			break
		}
		require.ErrorIs(t, err, unix.ENOSPC)
		failures++
		all := releases(t, s)
		require.Equal(t, []Release{other}, all, "with %d bytes", free)
		require.Empty(t, staged(t, s))
		starts(t, s, other)
		back()
		require.NoError(t, os.RemoveAll(filepath.Join(s.cfg.Dir, "downloads", "tool", "candidate")))
	}
	t.Logf("the disk was full at %d steps", failures)
	require.GreaterOrEqual(t, failures, 6)
	require.Len(t, versions(t, s), 2)
	starts(t, s, other)
}
