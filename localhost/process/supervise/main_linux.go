package supervise

import (
	"errors"
	"math"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	socket     = 3       // the descriptor of the socket to the gateway
	maxRequest = 6 << 20 // bounds one encoded request, in bytes
)

// Exit statuses of a supervisor, for whoever debugs one.
const (
	exitLifeline = 0 // the gateway is gone, and so is the tree
	exitSetup    = 2
	exitProtocol = 3
)

// Main becomes a supervisor, and never returns, if this process was started as one.
// Otherwise it does nothing. It must run before any other code of the program.
func Main() {
	if len(os.Args) > 1 && os.Args[0] == limitsArgv0 {
		takeStep()
	}
	if len(os.Args) != 1 || os.Args[0] != Argv0 {
		return
	}
	// Children belong to the thread that forked them, and no_new_privs, the signal
	// mask and the parent-death signal are a thread's too: one thread does it all.
	runtime.LockOSThread()
	if setup() != nil {
		os.Exit(exitSetup)
	}
	kids, err := openChildren()
	if err != nil {
		os.Exit(exitSetup)
	}
	s := &server{children: kids, buf: make([]byte, HeaderSize+MaxPayload)}
	s.send(Message{Kind: Hello, Extra: ID()})
	os.Exit(s.serve())
}

// setup gives this process what its children shall inherit, and takes from it what
// they shall not.
func setup() error {
	if err := defaultSignals(); err != nil {
		return err
	}
	// A terminal's ^C or a service manager's SIGTERM is for the gateway to answer;
	// only its end ends a supervisor. A handler, unlike SIG_IGN, is reset by exec.
	signal.Notify(make(chan os.Signal, 1), unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM)
	unix.Umask(0o077)
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return err
	}
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		return err
	}
	files.Cur = min(softFiles, files.Max)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		return err
	}
	for _, p := range []struct{ option, value int }{
		{unix.PR_SET_NO_NEW_PRIVS, 1},
		{unix.PR_SET_CHILD_SUBREAPER, 1},
		{unix.PR_SET_DUMPABLE, 0}, // requests carry secrets
	} {
		if err := unix.Prctl(p.option, uintptr(p.value), 0, 0, 0); err != nil {
			return err
		}
	}
	name := []byte("lend-supervisor\x00")
	_ = unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(&name[0])), 0, 0, 0) // only a name
	if err := unix.Chdir("/"); err != nil {
		return err
	}
	return closeOnExec()
}

// defaultSignals unblocks every signal and undoes every ignored one, however the
// gateway was started (nohup, a service manager, a careless parent).
func defaultSignals() error {
	const ignored = 1
	for sig := uintptr(1); sig <= 64; sig++ {
		var old, def [8]uint64 // larger than any kernel sigaction; the handler is first
		if _, _, e := unix.RawSyscall6(unix.SYS_RT_SIGACTION, sig, 0, uintptr(unsafe.Pointer(&old)), 8, 0, 0); e != 0 {
			continue
		}
		if old[0] == ignored {
			_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(&def)), 0, 8, 0, 0)
		}
	}
	return unix.PthreadSigmask(unix.SIG_SETMASK, &unix.Sigset_t{}, nil)
}

// closeOnExec keeps every descriptor from the children but 0 to 2.
func closeOnExec() error {
	err := unix.CloseRange(socket, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
	if err == nil {
		return nil
	}
	open, err := os.ReadDir("/proc/self/fd") // Linux before 5.11
	if err != nil {
		return err
	}
	for _, e := range open {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd >= socket {
			_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETFD, unix.FD_CLOEXEC) // the directory itself is closed by now
		}
	}
	return nil
}

// server is one supervisor. It has one goroutine.
type server struct {
	children *children
	buf      []byte
	happened time.Time // when the last message came, or a child has exited
}

// operation is the one that runs.
type operation struct {
	seq      uint64
	root     int // process ID of the child; nobody else's until it is reaped
	pidfd    int // -1 on kernels before 5.4
	leader   bool
	began    time.Time
	exited   bool // root is a zombie or reaped; status and took are set
	reaped   bool
	reported bool
	status   uint32
	took     time.Duration
	most     int // tasks of the tree; 0: no bound
	counted  time.Time
	limited  bool // it had more
}

func (s *server) send(m Message) {
	var b [HeaderSize]byte
	// A failure means that the gateway is gone, which the next receive says as well.
	_ = ignoringEINTR(func() error { return unix.Sendto(socket, m.Append(b[:0]), unix.MSG_NOSIGNAL, nil) })
}

// receive returns the next message with its descriptors; ok is false at the end.
func (s *server) receive() (m Message, payload []byte, fds []int, ok bool) {
	var oob [64]byte
	var n, oobn, flags int
	err := ignoringEINTR(func() (err error) {
		n, oobn, flags, _, err = unix.Recvmsg(socket, s.buf, oob[:], unix.MSG_CMSG_CLOEXEC)
		return err
	})
	if err != nil || n == 0 {
		return Message{}, nil, nil, false
	}
	if oobn > 0 {
		fds, err = rights(oob[:oobn])
	}
	m, payload, perr := ParseMessage(s.buf[:n])
	if err != nil || perr != nil || flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
		os.Exit(exitProtocol)
	}
	return m, payload, fds, true
}

func rights(oob []byte) ([]int, error) {
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil || len(msgs) != 1 {
		return nil, errMalformed
	}
	return unix.ParseUnixRights(&msgs[0])
}

func (s *server) serve() int {
	for {
		s.linger()
		m, payload, fds, ok := s.receive()
		s.happened = time.Now()
		switch {
		case !ok:
			return exitLifeline
		case m.Kind == Terminate || m.Kind == Kill:
			continue // came too late: that operation is over
		case m.Kind != Start:
			return exitProtocol
		}
		request, code := s.request(m, payload)
		if code >= 0 {
			return code
		}
		if op := s.start(m, request, fds); op != nil && !s.run(op) {
			return exitLifeline
		}
	}
}

// request collects the parts of a request. code is negative if it is whole.
func (s *server) request(m Message, payload []byte) (r Request, code int) {
	if m.Value > maxRequest || int(m.Value) < len(payload) {
		return r, exitProtocol
	}
	whole := append(make([]byte, 0, m.Value), payload...)
	defer clear(whole[:cap(whole)])
	for len(whole) < int(m.Value) {
		next, part, _, ok := s.receive()
		if !ok {
			return r, exitLifeline
		}
		if next.Kind != More || next.Seq != m.Seq || len(part) == 0 || len(part) > int(m.Value)-len(whole) {
			return r, exitProtocol
		}
		whole = append(whole, part...)
	}
	r, err := ParseRequest(whole)
	clear(s.buf)
	if err != nil {
		return r, exitProtocol
	}
	return r, -1
}

// start starts the child; nil if it did not start.
func (s *server) start(m Message, r Request, fds []int) *operation {
	files := make([]uintptr, 0, 5)
	want := 3
	if !m.Stdin {
		files = append(files, 0) // ours is the null device
		want = 2
	}
	if len(fds) != want {
		os.Exit(exitProtocol)
	}
	for _, fd := range fds {
		files = append(files, uintptr(fd))
	}
	op := &operation{seq: m.Seq, pidfd: -1, leader: !m.Terminal, began: time.Now(), most: r.Processes}
	pid, err := op.execute(r, files)
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
	if err != nil {
		s.send(failure(m.Seq, r.Dir, err))
		return nil
	}
	op.root = pid
	s.send(Message{Kind: Started, Seq: op.seq, Value: uint32(pid)})
	return op
}

// execute starts the child, by way of a step of its own if it has limits, from a
// descriptor of the file that was verified if that is pinned. An error means that
// nothing runs.
func (op *operation) execute(r Request, files []uintptr) (pid int, err error) {
	pinned := -1
	if r.Pin != (Pin{}) {
		if pinned, err = openPinned(r.Path, r.Pin); err != nil {
			return 0, err
		}
		defer func() { _ = unix.Close(pinned) }()
		r.Path = fdPath(pinned)
	}
	if !r.limited() {
		return op.fork(r.Path, r.Args, r, files)
	}
	return op.executeLimited(r, files, pinned)
}

func (op *operation) executeLimited(r Request, files []uintptr, pinned int) (pid int, err error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return 0, err
	}
	files = append(files, uintptr(p[1]))
	if pinned >= 0 {
		files = append(files, uintptr(pinned))
		r.Path = fdPath(stepPinned)
	}
	pid, err = op.fork("/proc/self/exe", r.step(), r, files)
	_ = unix.Close(p[1])
	if err == nil {
		if err = awaitStep(p[0]); err != nil {
			op.abandon(pid)
		}
	}
	_ = unix.Close(p[0])
	return pid, err
}

// abandon ends and reaps a child that did not get to its program.
func (op *operation) abandon(pid int) {
	_ = unix.Kill(pid, unix.SIGKILL)
	_ = ignoringEINTR(func() error { _, err := unix.Wait4(pid, nil, unix.WALL, nil); return err })
	if op.pidfd >= 0 {
		_ = unix.Close(op.pidfd)
	}
}

func (op *operation) fork(path string, args []string, r Request, files []uintptr) (int, error) {
	return syscall.ForkExec(path, args, &syscall.ProcAttr{
		Dir: r.Dir, Env: r.Env, Files: files,
		Sys: &syscall.SysProcAttr{
			Setsid:    op.leader,
			Pdeathsig: syscall.SIGKILL, // the tree's root dies with us at once; the gateway adopts the rest
			PidFD:     &op.pidfd,
		},
	})
}

func failure(seq uint64, dir string, err error) Message {
	m := Message{Kind: Failed, Seq: seq, Value: uint32(unix.EIO)}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		m.Value = uint32(errno)
	}
	var st unix.Stat_t
	if unix.Stat(dir, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR || unix.Access(dir, unix.X_OK) != nil {
		m.Directory = true
	}
	return m
}

// run watches op until its subtree is empty; false if the gateway is gone.
func (s *server) run(op *operation) bool {
	if op.pidfd >= 0 {
		defer func() { _ = unix.Close(op.pidfd) }()
	}
	for {
		message := s.wait(op)
		if s.settled(op) {
			return true // a message that came too late is dropped by serve
		}
		if s.crowded(op) {
			op.limited = true
			s.sweep(op)
			return true
		}
		if !message {
			continue
		}
		m, _, _, ok := s.receive()
		switch {
		case !ok:
			s.sweep(op)
			return false
		case m.Seq != op.seq:
			continue
		case m.Kind == Terminate:
			s.terminate(op)
		case m.Kind == Kill:
			s.sweep(op)
			return true
		default:
			s.sweep(op)
			os.Exit(exitProtocol)
		}
	}
}

// wait blocks until the child exits, a message comes (true) or some time is over. A
// SIGCHLD of an adopted process interrupts it; if that comes a moment too early, a
// zombie stays for the time-out and no longer.
func (s *server) wait(op *operation) bool {
	timeout := 1000
	set := [2]unix.PollFd{{Fd: socket, Events: unix.POLLIN}, {Fd: -1}}
	switch {
	case op.most > 0:
		timeout = countEvery
	case op.exited:
		timeout = 100
	case op.pidfd < 0:
		timeout = 10
	}
	if !op.exited && op.pidfd >= 0 {
		set[1] = unix.PollFd{Fd: int32(op.pidfd), Events: unix.POLLIN}
	}
	return s.poll(set[:], timeout) > 0 && set[0].Revents != 0
}

func ignoringEINTR(f func() error) error {
	for {
		if err := f(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
