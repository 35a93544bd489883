package admin

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
)

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
	return readParent(b)
}

// readParent finds the parent in what the system says of a process.
func readParent(b []byte) (int, error) {
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
