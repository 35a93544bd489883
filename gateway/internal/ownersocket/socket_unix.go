//go:build unix

package ownersocket

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// Check refuses what is not a socket of this user's, closed to others, in a directory
// that is so too. What it is called is for errors; os.ErrNotExist if nothing is there.
func Check(what, path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return fmt.Errorf("look at the %s: %w", what, err)
	}
	if info.Mode().Type() != os.ModeSocket || !ownAlone(info) {
		return fmt.Errorf("%s: %s is not a socket of yours with mode 0600", what, path)
	}
	return checkDirectory(what, filepath.Dir(path))
}

// checkDirectory refuses a directory that others can reach or that is not ours.
func checkDirectory(what, dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("directory of the %s: %w", what, err)
	}
	if !ownAlone(info) {
		return fmt.Errorf("directory of the %s: %s must be yours with mode 0700", what, dir)
	}
	return nil
}

// ownAlone tells whether something is this user's, and closed to all others.
func ownAlone(info os.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Getuid() && info.Mode().Perm()&0o077 == 0
}

// listenPrivate makes the socket under a name of its own, closes it to others and moves
// it into place, so that it is never open to them.
func listenPrivate(path string) (net.Listener, error) {
	temp := tempName(path)
	if err := os.Remove(temp); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: temp, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	info, err := os.Lstat(temp)
	if err = errors.Join(err, os.Chmod(temp, 0o600)); err == nil {
		err = os.Rename(temp, path)
	}
	if err != nil {
		return nil, errors.Join(err, l.Close(), os.Remove(temp))
	}
	return &listener{UnixListener: l, path: path, made: info}, nil
}

// lockDirectory keeps other programs that listen out of the directory, until unlock.
func lockDirectory(ctx context.Context, dir string) (unlock func(), err error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, lockTimeout)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := syscall.Flock(int(d.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = d.Close() }, nil // which unlocks
		}
		select {
		case <-tick.C: // whatever it was, it may be over
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("lock %s: %w: %w", dir, err, context.Cause(ctx)), d.Close())
		}
	}
}

// tempName is no longer than a path that ends in a word, and not another socket's.
func tempName(path string) string {
	return filepath.Join(filepath.Dir(path), "."+filepath.Base(path)[:1]+strconv.Itoa(os.Getpid()))
}

// listener removes its socket once, and no other.
type listener struct {
	*net.UnixListener
	path  string
	made  os.FileInfo
	close sync.Once
	err   error
}

func (l *listener) Close() error {
	l.close.Do(func() {
		var err error
		// While it is alive: as soon as it is not, another may take its place.
		if there, look := os.Lstat(l.path); look == nil && os.SameFile(there, l.made) {
			err = os.Remove(l.path)
		}
		l.err = errors.Join(err, l.UnixListener.Close())
	})
	return l.err
}
