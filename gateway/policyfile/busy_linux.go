package policyfile

import (
	"errors"

	"golang.org/x/sys/unix"
)

// busy tells whether somebody has the file open for writing: only then is a read
// lease refused with EAGAIN. A file system without leases, or a file that is not
// ours, is not busy. The lease is given back at once.
func busy(path string) bool {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(fd) }()
	_, err = unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_RDLCK)
	if err == nil {
		_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_UNLCK)
	}
	return errors.Is(err, unix.EAGAIN)
}
