package filelock

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"
)

// ErrHeld means that another process or goroutine holds the lock.
var ErrHeld = errors.New("lock is held")

// pollEvery is how often Exclusive asks again; waiting is rare and for long work.
const pollEvery = 20 * time.Millisecond

// Lock is one held lock. Close lets go and is idempotent.
type Lock struct{ close func() error }

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

func lock(path string, shared bool) (*Lock, error) {
	f, err := open(path)
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	if err := flock(f, shared); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", filepath.Base(path), err), f.Close())
	}
	return &Lock{close: sync.OnceValue(f.Close)}, nil
}

// Close lets go of the lock.
func (l *Lock) Close() error { return l.close() }
