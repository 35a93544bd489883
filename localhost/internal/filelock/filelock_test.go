package filelock

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLocks(t *testing.T) {
	t.Parallel()
	p := filepath.Join(t.TempDir(), "lock")
	a, err := Try(p)
	require.NoError(t, err)
	_, err = Try(p)
	require.ErrorIs(t, err, ErrHeld, "locks of one process exclude each other")
	_, err = TryShared(p)
	require.ErrorIs(t, err, ErrHeld)
	require.NoError(t, a.Close())
	require.NoError(t, a.Close(), "Close is idempotent")

	b, err := TryShared(p)
	require.NoError(t, err)
	c, err := TryShared(p)
	require.NoError(t, err)
	_, err = Try(p)
	require.ErrorIs(t, err, ErrHeld)
	require.NoError(t, b.Close())
	require.NoError(t, c.Close())
	_, err = TryShared(filepath.Join(p, "below-a-file"))
	require.Error(t, err)
}

func TestExclusiveWaits(t *testing.T) {
	t.Parallel()
	p := filepath.Join(t.TempDir(), "lock")
	a, err := Exclusive(t.Context(), p)
	require.NoError(t, err)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = Exclusive(ctx, p)
	require.ErrorIs(t, err, context.Canceled)

	got := make(chan error, 1)
	go func() {
		b, err := Exclusive(t.Context(), p)
		if err == nil {
			err = b.Close()
		}
		got <- err
	}()
	require.NoError(t, a.Close())
	require.NoError(t, <-got)
}

// A lock file that is removed while others want it never lets two hold it: each looks
// whether what it has locked is still at the path.
func TestRemoveExcludes(t *testing.T) {
	t.Parallel()
	p := filepath.Join(t.TempDir(), "lock")
	inside := p + ".inside"
	var held atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for held.Load() < 300 {
				l, err := Try(p)
				if errors.Is(err, ErrHeld) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				held.Add(1)
				if err := os.Mkdir(inside, 0o700); err != nil {
					t.Errorf("two hold it: %v", err)
					return
				}
				if err := errors.Join(os.Remove(inside), l.Remove()); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	require.NoFileExists(t, p)
}

// Who opened the file before it was removed does not hold the lock of what is there now.
func TestRemovedUnderAWaiter(t *testing.T) {
	t.Parallel()
	p := filepath.Join(t.TempDir(), "lock")
	a, err := Try(p)
	require.NoError(t, err)
	stale, err := open(p) // as a waiter that comes between open and flock
	require.NoError(t, err)
	require.NoError(t, a.Remove())
	require.NoError(t, a.Remove(), "nothing is there any more, and nobody is hurt")
	require.NoError(t, flock(stale, false))
	require.False(t, isAt(stale, p))
	b, err := Try(p)
	require.NoError(t, err)
	require.False(t, isAt(stale, p), "another file is there")
	require.NoError(t, a.Remove())
	require.FileExists(t, p, "that of another holder stays")
	require.NoError(t, b.Remove())
	require.NoError(t, stale.Close())
	require.NoFileExists(t, p)
}

// A directory in the place of a lock's file gives way if it is empty, and says where it
// is otherwise.
func TestDirectoryInTheWay(t *testing.T) {
	t.Parallel()
	for _, try := range []func(string) (*Lock, error){Try, TryShared} {
		p := filepath.Join(t.TempDir(), "lock")
		require.NoError(t, os.Mkdir(p, 0o700))
		l, err := try(p)
		require.NoError(t, err)
		require.NoError(t, l.Close())
		require.FileExists(t, p)
		require.Error(t, dropEmpty(p), "no file is taken away")
		require.FileExists(t, p)

		require.NoError(t, os.Remove(p))
		require.NoError(t, os.MkdirAll(filepath.Join(p, "kept"), 0o700))
		_, err = try(p)
		var blocked *BlockedError
		require.ErrorAs(t, err, &blocked)
		require.Contains(t, blocked.Fix(), p)
		require.DirExists(t, filepath.Join(p, "kept"))
	}
}
