package admin

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// notOurs refuses a process in a group that a child of this one leads.
func notOurs(pid int) error {
	self := os.Getpid()
	if pid == self {
		return nil
	}
	for range 4096 {
		k, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
		if err != nil {
			return fmt.Errorf("ancestry of process %d: %w", pid, err)
		}
		parent := int(k.Eproc.Ppid)
		switch parent {
		case self:
			return errors.New("the process was started by the gateway")
		case 0, 1:
			return nil
		}
		pid = parent
	}
	return errors.New("ancestry is too deep")
}
