//go:build unix

package ownersocket

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
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
	if err := errors.Join(os.Chmod(temp, 0o600), os.Rename(temp, path)); err != nil {
		return nil, errors.Join(err, l.Close(), os.Remove(temp))
	}
	return &listener{UnixListener: l, path: path}, nil
}

// tempName is no longer than a path that ends in a word, and not another socket's.
func tempName(path string) string {
	return filepath.Join(filepath.Dir(path), "."+filepath.Base(path)[:1]+strconv.Itoa(os.Getpid()))
}

// listener removes its socket once: what is there later is another one.
type listener struct {
	*net.UnixListener
	path  string
	close sync.Once
	err   error
}

func (l *listener) Close() error {
	l.close.Do(func() {
		l.err = l.UnixListener.Close()
		if err := os.Remove(l.path); !errors.Is(err, os.ErrNotExist) {
			l.err = errors.Join(l.err, err)
		}
	})
	return l.err
}
