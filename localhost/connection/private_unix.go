//go:build unix

package connection

import (
	"errors"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// private tells whether only this user can use the file.
func private(info fs.FileInfo) bool {
	sys, ok := info.Sys().(*syscall.Stat_t)
	return ok && info.Mode().Perm()&0o077 == 0 && int(sys.Uid) == os.Geteuid()
}

// openPrivate opens a file that is no link; a pipe does not block it.
func openPrivate(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
}

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// lockFile waits for the exclusive lock on a file, which it makes.
func lockFile(path string) (unlock func(), err error) {
	unlock, _, err = flock(path, unix.LOCK_EX)
	return unlock, err
}

// tryLockFile is lockFile without waiting; free is false if another has it.
func tryLockFile(path string) (unlock func(), free bool, err error) {
	return flock(path, unix.LOCK_EX|unix.LOCK_NB)
}

func flock(path string, how int) (unlock func(), got bool, err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, false, err
	}
	for {
		err = unix.Flock(int(f.Fd()), how)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, false, f.Close()
	}
	if err != nil {
		return nil, false, errors.Join(err, f.Close())
	}
	return func() { _ = f.Close() }, true, nil // closing lets go of the lock
}

// systemRoot is of Windows.
func systemRoot() string { return "" }
