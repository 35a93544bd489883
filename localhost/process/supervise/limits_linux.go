package supervise

import (
	"bytes"
	"encoding/binary"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// limitsArgv0 is argv[0] of the step between a supervisor and a child that has
// limits: this executable, once more, in the process that becomes the child. A
// supervisor could lower its own limits before the fork, but never raise them again.
const limitsArgv0 = "lend: limits"

// The argument vector of the step. What follows atPath is the child's own; the
// environment is the child's from the beginning, since anyone may read arguments.
const (
	atCgroup = 1 + iota
	atProcesses
	atMemory
	atPath
	atArgs
)

const (
	stepPipe   = 3    // the descriptor on which the step says how far it came
	stepPinned = 4    // the descriptor of the file to execute, if that is pinned
	stepReady  = 0x5a // the first byte; the end of file after it means executed
	softFiles  = 1024 // soft limit of open files of every child
	countEvery = 25   // milliseconds
)

func (r Request) limited() bool { return r.Processes > 0 || r.Memory > 0 || r.Cgroup != "" }

func (r Request) step() []string {
	return append([]string{
		limitsArgv0, r.Cgroup, strconv.Itoa(r.Processes), strconv.FormatInt(r.Memory, 10), r.Path,
	}, r.Args...)
}

// takeStep becomes the child: joins the cgroup, sets the limits, executes. It does
// not return. From the first limit on it allocates nothing, because it must hold
// before the child's first instruction and may be less than this program has.
func takeStep() {
	runtime.LockOSThread()
	unix.CloseOnExec(stepPipe)
	unix.CloseOnExec(stepPinned) // or what the Go runtime has there, which is so already
	args := os.Args
	if len(args) <= atArgs {
		stepFailed(unix.EINVAL)
	}
	processes, err1 := strconv.Atoi(args[atProcesses])
	memory, err2 := strconv.ParseInt(args[atMemory], 10, 64)
	path, err3 := syscall.BytePtrFromString(args[atPath])
	argv, err4 := syscall.SlicePtrFromStrings(args[atArgs:])
	envv, err5 := syscall.SlicePtrFromStrings(os.Environ())
	for _, err := range []error{err1, err2, err3, err4, err5} {
		if err != nil {
			stepFailed(unix.EINVAL)
		}
	}
	if dir := args[atCgroup]; dir != "" {
		if err := join(dir); err != 0 {
			stepFailed(err)
		}
	}
	limits, err := rlimits(processes, memory)
	if err != nil {
		stepFailed(unix.EIO)
	}
	ready := [1]byte{stepReady}
	_, _, _ = unix.RawSyscall(unix.SYS_WRITE, stepPipe, uintptr(unsafe.Pointer(&ready[0])), 1)
	for i := range limits {
		l := &limits[i]
		if _, _, e := unix.RawSyscall6(unix.SYS_PRLIMIT64, 0, l.resource, uintptr(unsafe.Pointer(&l.to)), 0, 0, 0); e != 0 {
			stepFailed(e)
		}
	}
	_, _, e := unix.RawSyscall(unix.SYS_EXECVE, uintptr(unsafe.Pointer(path)),
		uintptr(unsafe.Pointer(&argv[0])), uintptr(unsafe.Pointer(&envv[0])))
	stepFailed(e)
}

func stepFailed(e syscall.Errno) {
	b := [4]byte{byte(e), byte(e >> 8), byte(e >> 16), byte(e >> 24)}
	_, _, _ = unix.RawSyscall(unix.SYS_WRITE, stepPipe, uintptr(unsafe.Pointer(&b[0])), 4)
	for {
		_, _, _ = unix.RawSyscall(unix.SYS_EXIT_GROUP, 1, 0, 0)
	}
}

// join moves this process into a cgroup.
func join(dir string) syscall.Errno {
	fd, err := unix.Open(dir+"/cgroup.procs", unix.O_WRONLY|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
	if err == nil {
		_, err = unix.Write(fd, []byte("0"))
		_ = unix.Close(fd)
	}
	e, ok := err.(syscall.Errno) //nolint:errorlint // a system call's own
	if err != nil && !ok {
		return unix.EIO
	}
	return e
}

type rlimit struct {
	resource uintptr
	to       unix.Rlimit
}

// rlimits are those of the child. None is higher than what this process has.
func rlimits(processes int, memory int64) (out []rlimit, err error) {
	add := func(resource int, soft, hard uint64) {
		var now unix.Rlimit
		if e := unix.Getrlimit(resource, &now); e != nil {
			err = e
			return
		}
		hard = min(hard, now.Max)
		out = append(out, rlimit{uintptr(resource), unix.Rlimit{Cur: min(soft, hard), Max: hard}})
	}
	add(unix.RLIMIT_NOFILE, softFiles, unix.RLIM_INFINITY) // the Go runtime has raised it
	if processes > 0 {
		all, e := tasksOfMachine()
		if e != nil {
			return nil, e
		}
		most := all + uint64(processes)
		add(unix.RLIMIT_NPROC, most, most)
	}
	if memory > 0 {
		add(unix.RLIMIT_DATA, uint64(memory), uint64(memory))
	}
	return out, err
}

// tasksOfMachine is how many tasks all users have: the fourth field of
// /proc/loadavg, "running/all".
func tasksOfMachine() (uint64, error) {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0, err
	}
	f := bytes.Fields(b)
	if len(f) < 4 {
		return 0, errMalformed
	}
	_, all, _ := bytes.Cut(f[3], []byte("/"))
	return strconv.ParseUint(string(all), 10, 64)
}

// awaitStep returns how the step ended: nil once the child's program is executed.
func awaitStep(fd int) error {
	var b [5]byte
	n := 0
	for n < len(b) {
		var got int
		err := ignoringEINTR(func() (err error) { got, err = unix.Read(fd, b[n:]); return err })
		if err != nil {
			return err
		}
		if got == 0 {
			break
		}
		n += got
	}
	switch {
	case n == 1 && b[0] == stepReady:
		return nil
	case n >= 4: // perhaps after stepReady
		return syscall.Errno(binary.LittleEndian.Uint32(b[n-4:]))
	}
	return unix.EIO // it died on the way
}

// crowded says whether the tree has more tasks than it may. It looks no more often
// than it must.
func (s *server) crowded(op *operation) bool {
	if op.most == 0 || time.Since(op.counted) < countEvery*time.Millisecond/2 {
		return false
	}
	op.counted = time.Now()
	todo := append([]int(nil), s.others(op)...)
	if !op.reaped {
		todo = append(todo, op.root)
	}
	n := 0
	for len(todo) > 0 && n <= op.most {
		pid := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		var tasks int
		tasks, todo = appendTasks(todo, pid)
		n += tasks
	}
	return n > op.most
}

// appendTasks returns how many threads a process has and appends its children.
func appendTasks(pids []int, pid int) (int, []int) {
	dir := "/proc/" + strconv.Itoa(pid) + "/task/"
	tasks, err := os.ReadDir(dir)
	if err != nil {
		return 0, pids // it has gone
	}
	found := false
	for _, t := range tasks {
		if b, err := os.ReadFile(dir + t.Name() + "/children"); err == nil {
			found = true
			pids = appendPIDs(pids, b)
		}
	}
	if !found {
		pids = scan(pids, pid)
	}
	return len(tasks), pids
}
