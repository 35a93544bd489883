package process

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lendcli/lend/localhost/process/supervise"
)

// answerBudget bounds the wait for a supervisor's first word and for its answer to
// a request. Both take a millisecond or ten; a frozen one is killed.
const answerBudget = 10 * time.Second

// errUnread says that a supervisor died before it read the request: nothing ran.
var errUnread = errors.New("supervisor died before it read the request")

// supervisor is the gateway's end of one. Its goroutine reads until the supervisor
// is gone, then kills what that left.
type supervisor struct {
	pool  *backend
	cmd   *exec.Cmd
	pid   int
	born  uint64 // start time, in clock ticks
	sock  *os.File
	conn  syscall.RawConn
	hello chan bool // one: whether its first word was that of the same build
	once  bool      // serves a terminal, and one operation only

	mu  sync.Mutex // guards what follows
	seq uint64
	op  *operation // nil while idle
	end bool       // it is gone; op stays as it is
}

// spawn starts a supervisor, in a session of its own unless it is to serve a
// terminal. It tries lend-shim, then this executable.
func (b *backend) spawn(session bool) (*supervisor, error) {
	path, shim, err := b.exe.path()
	if err != nil {
		return nil, spawnError(err)
	}
	s, err := b.spawnAs(path, session)
	if err != nil && shim {
		b.config.Log.Warn().Err(err).Msg("lend-shim refused")
		b.exe.reject()
		return b.spawn(session)
	}
	if err != nil {
		return nil, spawnError(err)
	}
	return s, nil
}

func (b *backend) spawnAs(path string, session bool) (*supervisor, error) {
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, err
	}
	conn, err := ours.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, ours.Close(), theirs.Close())
	}
	s := &supervisor{
		pool: b, sock: ours, conn: conn, hello: make(chan bool, 1), once: !session,
		cmd: &exec.Cmd{
			Path: path, Args: []string{supervise.Argv0}, Dir: "/",
			// One thread does it all, and needs no signals to be preempted.
			Env:         []string{"GOMAXPROCS=1", "GOTRACEBACK=none", "GODEBUG=asyncpreemptoff=1"},
			ExtraFiles:  []*os.File{theirs},
			SysProcAttr: &syscall.SysProcAttr{Setsid: session},
		},
	}
	err = s.fork()
	_ = theirs.Close() // the child has its own
	if err != nil {
		return nil, errors.Join(err, ours.Close())
	}
	b.tasks.Go(s.read)
	timer := time.AfterFunc(answerBudget, s.kill)
	defer timer.Stop()
	if <-s.hello {
		return s, nil
	}
	return nil, errNoAnswer
}

// fork starts the process and makes it known before anyone may take it for an orphan.
func (s *supervisor) fork() error {
	s.pool.forking.RLock()
	defer s.pool.forking.RUnlock()
	if err := s.cmd.Start(); err != nil {
		return err
	}
	s.pid = s.cmd.Process.Pid
	if st, err := supervise.ReadStat(s.pid); err == nil {
		s.born = st.Start
	}
	s.pool.mu.Lock()
	s.pool.known[s.pid] = s
	s.pool.mu.Unlock()
	return nil
}

func socketPair() (ours, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	if err := unix.SetNonblock(fds[0], true); err != nil { // ours waits in the poller
		_, _ = unix.Close(fds[0]), unix.Close(fds[1])
		return nil, nil, os.NewSyscallError("set nonblock", err)
	}
	return os.NewFile(uintptr(fds[0]), "supervisor"), os.NewFile(uintptr(fds[1]), "gateway"), nil
}

// kill ends the supervisor at once; its goroutine sees to the rest.
func (s *supervisor) kill() {
	_ = s.cmd.Process.Kill() // the only error is that it has ended
}

// read serves the supervisor until it is gone and nothing that it left lives.
func (s *supervisor) read() {
	greeted, err := s.listen()
	s.kill()
	_ = s.cmd.Wait() // it was killed
	_ = s.sock.Close()
	s.mu.Lock()
	op := s.op
	s.end = true
	s.mu.Unlock()
	if op != nil || !greeted {
		s.pool.config.Log.Warn().Int("pid", s.pid).Msg("supervisor lost")
	}
	var swept error
	if op != nil {
		_ = op.group.Kill() // the hunt finds what it missed
		swept = s.pool.hunt(s.born)
	}
	s.pool.forget(s)
	if op != nil {
		s.pool.freed()
		op.lost(errors.Is(err, unix.ECONNRESET), swept)
	}
	if !greeted {
		s.hello <- false
	}
}

// listen handles reports until one is wrong or the socket ends.
func (s *supervisor) listen() (greeted bool, err error) {
	buf := make([]byte, supervise.HeaderSize+1)
	for {
		n, err := s.sock.Read(buf)
		if err != nil || n == 0 {
			return greeted, errors.Join(err, io.EOF)
		}
		m, _, err := supervise.ParseMessage(buf[:n])
		switch {
		case err != nil:
			return greeted, err
		case m.Kind == supervise.Hello && !greeted && m.Extra == supervise.ID():
			greeted = true
			s.hello <- true
		case !greeted || !s.report(m):
			return greeted, errNoAnswer
		}
	}
}

// report hands one report to the operation; false if it makes no sense.
func (s *supervisor) report(m supervise.Message) bool {
	s.mu.Lock()
	op := s.op
	over := m.Kind == supervise.Failed || m.Kind == supervise.Empty || m.Last
	if op == nil || m.Seq != s.seq {
		s.mu.Unlock()
		return false
	}
	if over {
		s.op = nil
	}
	s.mu.Unlock()
	if over {
		s.pool.release(s) // first, so that who waits for the end finds s ready
	}
	sense := false
	switch m.Kind {
	case supervise.Started:
		sense = op.answered(nil)
	case supervise.Failed:
		sense = op.answered(startError(m))
	case supervise.Exited:
		sense = op.exit(m)
	case supervise.Empty:
		sense = op.hasExited()
	default:
	}
	if over && !isClosed(op.gone) {
		op.over(nil)
	}
	return sense
}

// wake undoes a SIGSTOP that a command, a process of the same user, may have sent.
func (s *supervisor) wake() {
	_ = s.cmd.Process.Signal(unix.SIGCONT) // the only error is that it has ended
}

// send sends one command about the operation seq; if the supervisor is gone there
// is nothing to command.
func (s *supervisor) send(k supervise.Kind, seq uint64) {
	s.wake()
	_ = s.write(supervise.Message{Kind: k, Seq: seq}.Append(nil), nil)
}

// request sends r, with the Seq and the flags of m, in as many messages as it takes.
func (s *supervisor) request(m supervise.Message, r supervise.Request, files []int) error {
	whole := r.Append(make([]byte, 0, 1024))
	defer clear(whole[:cap(whole)]) // secrets
	buf := make([]byte, 0, supervise.HeaderSize+min(len(whole), supervise.MaxPayload))
	defer clear(buf[:cap(buf)])
	m.Kind, m.Value = supervise.Start, uint32(len(whole))
	rights := unix.UnixRights(files...)
	for rest := whole; ; {
		n := min(len(rest), supervise.MaxPayload)
		if err := s.write(append(m.Append(buf[:0]), rest[:n]...), rights); err != nil {
			return err
		}
		if rest = rest[n:]; len(rest) == 0 {
			return nil
		}
		m, rights = supervise.Message{Kind: supervise.More, Seq: m.Seq}, nil
	}
}

// write sends one message whole.
func (s *supervisor) write(b, rights []byte) error {
	var err error
	if e := s.conn.Write(func(fd uintptr) bool {
		for {
			_, err = unix.SendmsgN(int(fd), b, rights, nil, unix.MSG_NOSIGNAL)
			if !errors.Is(err, unix.EINTR) {
				return !errors.Is(err, unix.EAGAIN)
			}
		}
	}); e != nil {
		return e
	}
	return err
}
