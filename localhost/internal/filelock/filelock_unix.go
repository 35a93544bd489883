//go:build unix

package filelock

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// open spares the system calls by which os asks whether the file can be polled.
func open(path string) (*os.File, error) {
	for {
		fd, err := unix.Open(path, unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
		switch {
		case err == nil:
			return os.NewFile(uintptr(fd), path), nil
		case !errors.Is(err, unix.EINTR):
			return nil, &os.PathError{Op: "open", Path: path, Err: err}
		}
	}
}

// dropEmpty removes an empty directory, and nothing else: not the file of another, which
// may have come meanwhile.
func dropEmpty(path string) error { return unix.Rmdir(path) }

// remove takes the name away while the lock is held: what is made under it afterwards is
// another file.
func remove(l *Lock) error {
	var err error
	if isAt(l.file, l.path) {
		err = os.Remove(l.path)
	}
	return errors.Join(err, l.Close())
}

func flock(f *os.File, shared bool) error {
	how := unix.LOCK_EX | unix.LOCK_NB
	if shared {
		how = unix.LOCK_SH | unix.LOCK_NB
	}
	for {
		err := unix.Flock(int(f.Fd()), how)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EWOULDBLOCK):
			return ErrHeld
		}
		return err
	}
}
