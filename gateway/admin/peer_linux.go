package admin

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"

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
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return peer{}, err
	}
	if credErr != nil {
		return peer{}, fmt.Errorf("peer credentials: %w", credErr)
	}
	return peer{uid: int(cred.Uid), pid: int(cred.Pid)}, nil
}

const maxAncestors = 4096

// notOurs refuses a process that descends from this one: only what runs for
// peers does. A process whose ancestry cannot be read is refused as well.
func notOurs(pid int) error {
	self := os.Getpid()
	if pid == self {
		return nil
	}
	for range maxAncestors {
		parent, err := parentOf(pid)
		if err != nil {
			return fmt.Errorf("ancestry of process %d: %w", pid, err)
		}
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

func parentOf(pid int) (int, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, err
	}
	// pid (name) state ppid …; the name may hold anything, so the last ')' counts.
	i := bytes.LastIndexByte(b, ')')
	if i < 0 {
		return 0, errors.New("unexpected format")
	}
	f := bytes.Fields(b[i+1:])
	if len(f) < 2 {
		return 0, errors.New("unexpected format")
	}
	return strconv.Atoi(string(f[1]))
}
