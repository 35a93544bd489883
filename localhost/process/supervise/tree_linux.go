package supervise

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// settled reports what is new and says whether the subtree is empty.
func (s *server) settled(op *operation) bool {
	s.look(op)
	others := s.others(op)
	alive := s.reap(others)
	if !op.exited {
		return false
	}
	if alive == 0 && s.finish(op) {
		return true
	}
	s.report(op, Message{Kind: Exited})
	return false
}

// look notes whether the child has exited, without reaping it: as long as it is a
// zombie, its process group is nobody else's.
func (s *server) look(op *operation) {
	if op.exited {
		return
	}
	var info [128]byte // siginfo_t
	_, _, e := unix.Syscall6(unix.SYS_WAITID, unix.P_PID, uintptr(op.root), uintptr(unsafe.Pointer(&info)),
		unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, 0, 0)
	field := func(at uintptr) uint32 { return *(*uint32)(unsafe.Pointer(&info[at])) }
	if e != 0 || field(0) == 0 {
		return
	}
	const union = 12 + unsafe.Sizeof(uintptr(0)) - 4 // si_pid, si_uid, si_status
	op.exited, op.took = true, time.Since(op.began)
	switch status := field(union + 8); field(8) {
	case 2: // CLD_KILLED
		op.status = status
	case 3: // CLD_DUMPED
		op.status = status | 0x80
	default: // CLD_EXITED
		op.status = status << 8
	}
}

// report sends m with the end of the child, once.
func (s *server) report(op *operation, m Message) {
	if op.reported {
		return
	}
	op.reported = true
	m.Seq, m.Value, m.Extra, m.Limited = op.seq, op.status, uint64(op.took), op.limited
	s.send(m)
}

// finish reaps the child, the last of its tree, and reports that all is over;
// false if there is another child after all, which must be looked for harder.
func (s *server) finish(op *operation) bool {
	if !op.reaped {
		op.reaped = true
		_ = ignoringEINTR(func() error { _, err := unix.Wait4(op.root, nil, unix.WALL, nil); return err })
	}
	var err error
	for pid := 1; pid > 0; {
		pid, err = unix.Wait4(-1, nil, unix.WNOHANG|unix.WALL, nil)
	}
	if !errors.Is(err, unix.ECHILD) {
		s.children.hard = true
		return false
	}
	s.children.hard = false
	if op.reported {
		s.send(Message{Kind: Empty, Seq: op.seq})
	}
	s.report(op, Message{Kind: Exited, Last: true})
	return true
}

// others lists our children without the child that the operation began with.
func (s *server) others(op *operation) []int {
	all := s.children.list()
	for i, pid := range all {
		if pid == op.root && !op.reaped { // once reaped, the ID may be another's
			return append(all[:i], all[i+1:]...)
		}
	}
	return all
}

// reap reaps those of pids that have ended and returns how many have not.
func (s *server) reap(pids []int) (alive int) {
	for _, pid := range pids {
		if got, err := unix.Wait4(pid, nil, unix.WNOHANG|unix.WALL, nil); err == nil && got == 0 {
			alive++
		}
	}
	return alive
}

func (s *server) signal(op *operation, sig unix.Signal) {
	switch {
	case op.reaped:
	case op.leader:
		_ = unix.Kill(-op.root, sig)
	default:
		_ = unix.Kill(op.root, sig)
	}
}

func (s *server) terminate(op *operation) {
	s.signal(op, unix.SIGTERM)
	for _, pid := range s.others(op) {
		_ = unix.Kill(pid, unix.SIGTERM)
	}
}

// sweep kills the subtree and returns when nothing of it is left. Children are
// killed and reaped by this one goroutine, so no ID is ever signalled after it was
// reaped. Killing a process makes its children ours: hence the rounds. A process
// that forks as fast as it can loses, since a killed one cannot fork.
func (s *server) sweep(op *operation) {
	for {
		s.signal(op, unix.SIGKILL)
		others := s.others(op)
		for _, pid := range others {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		alive := s.reap(others)
		s.look(op)
		switch {
		case op.exited && alive == 0 && s.settled(op):
			return
		case op.exited && alive > 0:
			s.report(op, Message{Kind: Exited})
		}
		s.pause(op)
	}
}

// pause waits a millisecond, or less if the child or another process ends.
func (s *server) pause(op *operation) {
	set := [1]unix.PollFd{{Fd: -1}}
	if !op.exited {
		set[0] = unix.PollFd{Fd: int32(op.pidfd), Events: unix.POLLIN}
	}
	_, _ = unix.Poll(set[:], 1)
}

// children lists the children of this process: of its one forking thread, which is
// the first thread and hence the one that adopts, through a file that stays open;
// of every thread if that is not so or did not suffice; and by scanning all
// processes where the kernel has no such files.
type children struct {
	fd   int // -1: look hard
	hard bool
	buf  []byte
	pids []int
}

func openChildren() (*children, error) {
	c := &children{fd: -1, buf: make([]byte, 4096)}
	if unix.Gettid() == unix.Getpid() {
		name := "/proc/self/task/" + strconv.Itoa(unix.Getpid()) + "/children"
		if fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0); err == nil {
			c.fd = fd
			return c, nil
		}
	}
	_, err := os.Stat("/proc/self/task")
	return c, err
}

// list returns the process IDs, valid until the next call.
func (c *children) list() []int {
	c.pids = c.pids[:0]
	if c.fd >= 0 && !c.hard && c.read(c.fd) {
		return c.pids
	}
	c.pids = Children(c.pids[:0])
	return c.pids
}

// read reads one children file from its beginning, whole in one call, since a
// later call could miss a process when an earlier one has gone.
func (c *children) read(fd int) bool {
	for {
		n, err := unix.Pread(fd, c.buf, 0)
		if err != nil {
			return false
		}
		if n == len(c.buf) {
			c.buf = make([]byte, 2*len(c.buf))
			continue
		}
		c.pids = appendPIDs(c.pids, c.buf[:n])
		return true
	}
}

// Children appends the process IDs of all children of this process to pids.
func Children(pids []int) []int {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return pids
	}
	found := false
	for _, t := range tasks {
		if b, err := os.ReadFile("/proc/self/task/" + t.Name() + "/children"); err == nil {
			found = true
			pids = appendPIDs(pids, b)
		}
	}
	if found {
		return pids
	}
	return scan(pids, os.Getpid())
}

func appendPIDs(pids []int, b []byte) []int {
	for _, f := range bytes.Fields(b) {
		if pid, err := strconv.Atoi(string(f)); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// scan finds the children of a process among all processes.
func scan(pids []int, parent int) []int {
	all, err := os.ReadDir("/proc")
	if err != nil {
		return pids
	}
	for _, e := range all {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if st, err := ReadStat(pid); err == nil && st.Parent == parent {
			pids = append(pids, pid)
		}
	}
	return pids
}

// Stat is what /proc tells about a process.
type Stat struct {
	Parent, Session int
	Start           uint64 // clock ticks since boot
}

// ReadStat reads it; an error means that there is no such process.
func ReadStat(pid int) (Stat, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return Stat{}, err
	}
	// The second field is a name in brackets, which may hold anything.
	f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(f) < 20 {
		return Stat{}, errMalformed
	}
	parent, err1 := strconv.Atoi(string(f[1]))
	session, err2 := strconv.Atoi(string(f[3]))
	start, err3 := strconv.ParseUint(string(f[19]), 10, 64)
	return Stat{Parent: parent, Session: session, Start: start}, errors.Join(err1, err2, err3)
}
