//go:build unix && !linux

package stdio

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// pipe makes a pipe that no child inherits.
func pipe(p *[2]int) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := unix.Pipe(p[:]); err != nil {
		return err
	}
	unix.CloseOnExec(p[0])
	unix.CloseOnExec(p[1])
	return nil
}
