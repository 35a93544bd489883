package width

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

var errNoPipe = errors.New("not a pipe")

func widen(end any) error {
	c, ok := end.(syscall.Conn)
	if !ok {
		return errNoPipe
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { _, failed = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, Width) }); err != nil {
		return err
	}
	return failed
}
