//go:build unix && !linux

package process

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/lendcli/lend/localhost/route"
)

// tree is the process group of one child, or the child alone on a terminal. It is
// signalled only while the child is unreaped, so that its ID is nobody else's.
type tree struct {
	mu     sync.Mutex // guards what follows
	pid    int
	target int // what kill(2) gets: -pid for a group, pid on a terminal; 0 once reaped
}

func (t *tree) start(cmd *exec.Cmd, own bool) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: own} // a session is a group too
	if err := cmd.Start(); err != nil {
		return err
	}
	t.pid, t.target = cmd.Process.Pid, cmd.Process.Pid
	if own {
		t.target = -t.pid
	}
	return nil
}

// exited returns when the child has exited, not yet reaped, and kills the rest of
// its group while that is still certain to be its group.
func (t *tree) exited() {
	const pPID = 1
	var info [128]byte
	for {
		_, _, e := syscall.Syscall6(syscall.SYS_WAITID, pPID, uintptr(t.pid), //nolint:staticcheck // as package os does
			uintptr(unsafe.Pointer(&info)), unix.WEXITED|unix.WNOWAIT, 0, 0)
		if e != syscall.EINTR {
			break
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.target < 0 {
		_ = unix.Kill(t.target, unix.SIGKILL)
	}
	t.target = 0
}

func (t *tree) signal(s unix.Signal) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.target == 0 {
		return nil
	}
	if err := unix.Kill(t.target, s); err != nil && !errors.Is(err, unix.ESRCH) {
		return os.NewSyscallError("kill", err)
	}
	return nil
}

func (t *tree) terminate() error { return t.signal(unix.SIGTERM) }
func (t *tree) kill() error      { return t.signal(unix.SIGKILL) }
func (t *tree) close() error     { return nil }

func describe(e *route.Exit, s *os.ProcessState) {
	status, ok := s.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() {
		e.Code = s.ExitCode()
		return
	}
	e.Signal, e.Core = unix.SignalName(status.Signal()), status.CoreDump()
}

// Harden does nothing on this system, where other processes of the user cannot
// attach to a signed program without its consent.
func Harden() error { return nil }

func holdInterrupts() (restore func()) {
	held := make(chan os.Signal, 1)
	signal.Notify(held, unix.SIGINT, unix.SIGQUIT)
	return func() { signal.Stop(held) }
}
