package filelock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// ErrHeld means that another process or goroutine holds the lock.
var ErrHeld = errors.New("lock is held")

// BlockedError means that something else than a file is in the place of a lock's file.
type BlockedError struct{ Path string }

func (e *BlockedError) Error() string {
	return fmt.Sprintf("lock %s: a directory with something in it is in its place", filepath.Base(e.Path))
}

// Fix says what mends it.
func (e *BlockedError) Fix() string {
	return "take the directory " + e.Path + " away, then the same command again"
}

// pollEvery is how often Exclusive asks again; waiting is rare and for long work.
const pollEvery = 20 * time.Millisecond

// maxTries bounds how often a lock is tried whose file is taken away meanwhile.
const maxTries = 64

// Lock is one held lock. Close lets go and is idempotent.
type Lock struct {
	file  *os.File
	path  string
	close func() error
}

// Exclusive waits for the lock of the file at path, which is made if absent.
func Exclusive(ctx context.Context, path string) (*Lock, error) {
	return wait(ctx, path, Try)
}

// Shared waits for a lock that excludes only exclusive ones.
func Shared(ctx context.Context, path string) (*Lock, error) {
	return wait(ctx, path, TryShared)
}

func wait(ctx context.Context, path string, try func(string) (*Lock, error)) (*Lock, error) {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		l, err := try(path)
		if !errors.Is(err, ErrHeld) {
			return l, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("lock %s: %w", filepath.Base(path), context.Cause(ctx))
		case <-tick.C:
		}
	}
}

// Try takes the exclusive lock, or returns ErrHeld at once.
func Try(path string) (*Lock, error) { return lock(path, false) }

// TryShared takes a lock that excludes only exclusive ones, or returns ErrHeld.
func TryShared(path string) (*Lock, error) { return lock(path, true) }

// lock takes the lock of the file that is at path when it has it: a lock of one that
// Remove has taken away excludes nobody. A shared one is not looked at, since it is for
// files that stay.
func lock(path string, shared bool) (*Lock, error) {
	for range maxTries {
		f, err := open(path)
		if err != nil && isDir(path) {
			if dropEmpty(path) != nil {
				return nil, &BlockedError{Path: path}
			}
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("lock: %w", err)
		}
		if err := flock(f, shared); err != nil {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", filepath.Base(path), err), f.Close())
		}
		if shared || isAt(f, path) {
			return &Lock{file: f, path: path, close: sync.OnceValue(f.Close)}, nil
		}
		if err := f.Close(); err != nil {
			return nil, fmt.Errorf("lock %s: %w", filepath.Base(path), err)
		}
	}
	return nil, fmt.Errorf("lock %s: its file comes and goes: %w", filepath.Base(path), ErrHeld)
}

// isDir tells whether a directory is in the place of a lock's file. Nobody holds that.
func isDir(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.IsDir()
}

// isAt tells whether the open file is the one at path.
func isAt(f *os.File, path string) bool {
	have, err := f.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(path)
	return err == nil && os.SameFile(have, there)
}

// Close lets go of the lock.
func (l *Lock) Close() error { return l.close() }

// Remove takes the file of an exclusive lock away and lets go. Who waited for it, or
// opened it meanwhile, sees that and locks the file that is there then. Nobody may take
// it shared.
func (l *Lock) Remove() error { return remove(l) }
