package admin

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

func peerOf(c net.Conn) (peer, error) {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return peer{}, errors.New("not a unix connection")
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return peer{}, err
	}
	var p peer
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, err := unix.GetsockoptXucred(int(fd), unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
		if err != nil {
			credErr = err
			return
		}
		p.uid = int(cred.Uid)
		p.pid, credErr = unix.GetsockoptInt(int(fd), unix.SOL_LOCAL, unix.LOCAL_PEERPID)
	}); err != nil {
		return peer{}, err
	}
	if credErr != nil {
		return peer{}, fmt.Errorf("peer credentials: %w", credErr)
	}
	return p, nil
}

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
