package connection

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/windows"
)

// private: access control lists are inherited from the user's profile, where the
// directories are; modes say nothing here.
func private(fs.FileInfo) bool { return true }

func openPrivate(path string) (*os.File, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, ErrUnsafe
	}
	return os.Open(path)
}

// syncDir: directories cannot be flushed here.
func syncDir(string) error { return nil }

// lockFile waits for the exclusive lock on a file, which it makes.
func lockFile(path string) (unlock func(), err error) {
	unlock, _, err = lock(path, windows.LOCKFILE_EXCLUSIVE_LOCK)
	return unlock, err
}

// tryLockFile is lockFile without waiting; free is false if another has it.
func tryLockFile(path string) (unlock func(), free bool, err error) {
	return lock(path, windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY)
}

func lock(path string, flags uint32) (unlock func(), got bool, err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, false, err
	}
	err = windows.LockFileEx(windows.Handle(f.Fd()), flags, 0, 1, 0, new(windows.Overlapped))
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return nil, false, f.Close()
	}
	if err != nil {
		return nil, false, errors.Join(err, f.Close())
	}
	return func() { _ = f.Close() }, true, nil // closing lets go of the lock
}

// systemRoot is where many programs find what they load; from the system, not
// from our own environment.
func systemRoot() string {
	dir, err := windows.GetSystemWindowsDirectory()
	if err != nil {
		return ""
	}
	return dir
}
