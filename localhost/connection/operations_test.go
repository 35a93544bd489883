package connection

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestOperations(t *testing.T) {
	t.Parallel()

	t.Run("make-and-remove", func(t *testing.T) {
		t.Parallel()
		r := openRoot(t)
		o, err := r.Operations("boot-1", nil)
		require.NoError(t, err)
		require.NoError(t, o.Left())
		a, err := o.Make()
		require.NoError(t, err)
		b, err := o.Make()
		require.NoError(t, err)
		require.NotEqual(t, a, b)
		requirePrivate(t, a, 0o700)
		require.NoError(t, os.WriteFile(filepath.Join(a, "out"), nil, 0o600))
		require.NoError(t, o.Remove(a))
		requireGone(t, a)
		for _, wrong := range []string{a, "", "/", r.Dir(), filepath.Dir(b), filepath.Join(b, "x"), b + "/../.."} {
			require.ErrorIs(t, o.Remove(wrong), ErrInvalid, wrong)
		}
		require.DirExists(t, b)
		require.NoError(t, o.Close())
		require.NoError(t, o.Close())
		left, err := os.ReadDir(filepath.Join(r.Dir(), operationsDir))
		require.NoError(t, err)
		require.Len(t, left, 1, "only the gate")
	})

	t.Run("remove-follows-no-link-and-opens-what-is-sealed", func(t *testing.T) {
		t.Parallel()
		if runtime.GOOS == "windows" {
			t.Skip("modes and links are of unix")
		}
		o, err := openRoot(t).Operations("boot-1", nil)
		require.NoError(t, err)
		dir, err := o.Make()
		require.NoError(t, err)
		outside := t.TempDir()
		kept := filepath.Join(outside, "kept")
		require.NoError(t, os.WriteFile(kept, nil, 0o600))
		require.NoError(t, os.Symlink(outside, filepath.Join(dir, "link")))
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "sealed", "in"), 0o700))
		require.NoError(t, os.Symlink(outside, filepath.Join(dir, "sealed", "link")))
		require.NoError(t, os.Chmod(filepath.Join(dir, "sealed"), 0))
		require.NoError(t, os.Chmod(dir, 0o500))
		require.NoError(t, o.Remove(dir))
		requireGone(t, dir)
		require.FileExists(t, kept)
		info, err := os.Stat(outside)
		require.NoError(t, err)
		require.NotEqual(t, os.FileMode(0), info.Mode().Perm()&0o700)

		// A directory that the program replaced by a link.
		dir, err = o.Make()
		require.NoError(t, err)
		require.NoError(t, os.Remove(dir))
		require.NoError(t, os.Symlink(outside, dir))
		require.NoError(t, o.Remove(dir))
		requireGone(t, dir)
		require.FileExists(t, kept)
		require.NoError(t, o.Close())
	})

	t.Run("orphans-go-and-live-hosts-stay", func(t *testing.T) {
		t.Parallel()
		r := openRoot(t)
		c := create(t, r)
		live, err := r.Operations("live", nil)
		require.NoError(t, err)
		kept, err := live.Make()
		require.NoError(t, err)
		dead, err := r.Operations("dead", nil)
		require.NoError(t, err)
		orphan, err := dead.Make()
		require.NoError(t, err)
		orphanHome, err := dead.Home(t.Context(), c)
		require.NoError(t, err)
		sealedHome := filepath.Join(orphanHome.Home, "read-only", "in")
		require.NoError(t, os.MkdirAll(sealedHome, 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(sealedHome, "f"), nil, 0o400))
		require.NoError(t, os.Chmod(filepath.Dir(sealedHome), 0o500))
		dead.rooms.Close()
		require.NoError(t, dead.lock.Close(), "as when its process is killed")
		temp := filepath.Join(c.Temp(), "x")
		require.NoError(t, os.WriteFile(temp, nil, 0o600))

		next, err := r.Operations("next", nil)
		require.NoError(t, err)
		require.NoDirExists(t, orphan)
		require.NoDirExists(t, filepath.Dir(orphanHome.Home), "with what a command made read-only")
		require.DirExists(t, kept)
		require.FileExists(t, temp, "another host is alive and may use it")
		_, err = r.Operations("next", nil)
		require.Error(t, err, "a name that is taken")

		require.NoError(t, live.Close())
		require.NoError(t, next.Close())
		last, err := r.Operations("last", nil)
		require.NoError(t, err)
		require.NoFileExists(t, temp)
		require.DirExists(t, c.Temp())
		require.NoError(t, last.Close())
	})
}

// Directories are made ahead and handed out once each, whoever asks.
func TestOperationsConcurrently(t *testing.T) {
	t.Parallel()
	o, err := openRoot(t).Operations("boot-1", nil)
	require.NoError(t, err)
	seen := make(chan string, 200)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 25 {
				dir, err := o.Make()
				if err != nil {
					t.Error(err)
					return
				}
				seen <- dir
			}
		})
	}
	wg.Wait()
	close(seen)
	all := make(map[string]bool)
	for dir := range seen {
		require.False(t, all[dir])
		all[dir] = true
		require.DirExists(t, dir)
	}
	require.Len(t, all, 200)
	require.NoError(t, o.Close())
	_, err = o.Make()
	require.Error(t, err)
}

// requireGone waits for the end of a directory that is not used again.
func requireGone(t *testing.T, dir string) {
	t.Helper()
	require.Eventually(t, func() bool {
		_, err := os.Lstat(dir)
		return errors.Is(err, fs.ErrNotExist)
	}, 30*time.Second, time.Millisecond)
}
