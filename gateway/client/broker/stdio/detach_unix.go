//go:build linux || darwin

package stdio

import (
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// Detach gives the controlling terminal up, if there is one, and ignores what would
// stop or end a program that reads and writes the streams of others: a terminal lets
// only those of its own processes read that are in the foreground.
func Detach() {
	signal.Ignore(syscall.SIGPIPE, syscall.SIGTTIN, syscall.SIGTTOU)
	fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return // there is none
	}
	_ = unix.IoctlSetInt(fd, unix.TIOCNOTTY, 0) // whose session it is keeps it, and may read it
	_ = unix.Close(fd)
}
