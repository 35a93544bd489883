package process

import (
	"bytes"
	"os"
	"os/signal"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lendcli/lend/localhost/process/supervise"
)

// huntBudget bounds the hunt for what a dead supervisor left.
const huntBudget = 10 * time.Second

// hunt kills and reaps what supervisors that died left to this process. born is the
// start time of the one that died. It must be called after that one was reaped: its
// tree is then ours. ErrSurvivors means that some of it did not die in time.
func (b *backend) hunt(born uint64) error {
	b.forking.Lock()
	defer b.forking.Unlock()
	self, err := supervise.ReadStat(os.Getpid())
	if err != nil {
		return err
	}
	deadline := time.Now().Add(huntBudget)
	for {
		found := 0
		for _, pid := range supervise.Children(nil) {
			if b.stray(pid, self.Session, born) {
				b.end(pid, self.Session, born) // its children are ours now
				found++
			}
		}
		switch {
		case found == 0:
			return nil
		case time.Now().After(deadline):
			return ErrSurvivors
		}
	}
}

// stray says whether a child of this process is one that it did not start but
// inherited from a supervisor. Such a one is not in our session, which nobody can
// join who has left it, and has no_new_privs, which nobody can shed; a child that
// the program around us started is in our session, unless it asked for another, and
// without that flag, unless all of us have it. See docs/adr/0052.
func (b *backend) stray(pid, session int, born uint64) bool {
	b.mu.Lock()
	_, known := b.known[pid]
	b.mu.Unlock()
	if known {
		return false
	}
	st, err := supervise.ReadStat(pid)
	return err == nil && st.Parent == os.Getpid() && st.Session != session && st.Start >= born && noNewPrivs(pid)
}

// end kills the child and reaps it, or waits a moment. It is held by a descriptor
// first and looked at again then, so that another process, which took its ID after
// someone else reaped it, is not hit.
func (b *backend) end(pid, session int, born uint64) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		_, _ = unix.Poll(nil, 1) // it has gone, or the kernel is too old (5.3)
		return
	}
	defer func() { _ = unix.Close(fd) }()
	if !b.stray(pid, session, born) {
		return
	}
	_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
	set := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	_, _ = unix.Poll(set[:], 10)
	_ = unix.Waitid(unix.P_PIDFD, fd, nil, unix.WEXITED|unix.WNOHANG|unix.WALL, nil) // this one alone
}

func noNewPrivs(pid int) bool {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	return err == nil && bytes.Contains(status, []byte("\nNoNewPrivs:\t1\n"))
}

// Harden keeps other processes of the same user (the commands that are lent among
// them) from reading this process's memory or attaching to it, and it from dumping
// core. Call it once, early, in a process that holds keys or secrets.
func Harden() error {
	return os.NewSyscallError("prctl", unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0))
}

// holdTerminal leaves ^C and ^\ to the command that uses the terminal, and puts the
// terminal's modes back afterwards.
func holdTerminal() (restore func()) {
	ignored := make(chan os.Signal, 1)
	signal.Notify(ignored, unix.SIGINT, unix.SIGQUIT)
	modes, err := unix.IoctlGetTermios(0, unix.TCGETS)
	return func() {
		if err == nil {
			_ = unix.IoctlSetTermios(0, unix.TCSETSW, modes) // it may be gone
		}
		signal.Stop(ignored)
	}
}
