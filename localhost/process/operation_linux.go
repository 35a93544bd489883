package process

import (
	"context"
	"errors"
	"io"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lendcli/lend/localhost/process/cgroup"
	"github.com/lendcli/lend/localhost/process/supervise"
	"github.com/lendcli/lend/localhost/route"
)

// closeBudget bounds the wait for a supervisor to empty its subtree; then it is
// killed and the tree with it, under the same budget again.
const closeBudget = 10 * time.Second

// nudgeAfter is when a supervisor that has not answered a request is woken once more.
const nudgeAfter = 250 * time.Millisecond

// operation is one command under a supervisor. It is a route.Process.
type operation struct {
	super *supervisor
	seq   uint64
	// The gateway's ends; stdin is nil if the child has none.
	stdin, stdout, stderr *os.File

	group *cgroup.Group // nil without a delegated cgroup

	answer chan error // one: nil for started

	exited  chan struct{} // closed when result and err are set
	result  route.Exit
	err     error
	gone    chan struct{} // closed when nothing of the tree lives and survive is set
	survive error

	terminated, killed atomic.Bool

	closing  sync.Once
	closed   error
	whenDone func() // set before the operation is handed out
}

// start hands spec to an idle supervisor. It gives s back or away in every case.
func (s *supervisor) start(spec Spec) (*operation, error) {
	op := &operation{super: s}
	files, err := op.pipes(spec.Stdin)
	if err != nil {
		s.pool.release(s)
		return nil, unavailable(err)
	}
	return op.begin(spec, supervise.Message{Stdin: spec.Stdin}, files)
}

// startOnTerminal runs spec under a supervisor of its own on our own descriptors.
func (b *backend) startOnTerminal(_ context.Context, spec Spec) (running, error) {
	b.mu.Lock()
	b.running++
	b.mu.Unlock()
	s, err := b.spawn(false)
	if err != nil {
		b.freed()
		return nil, unavailable(err)
	}
	op, err := (&operation{super: s}).begin(spec, supervise.Message{Stdin: true, Terminal: true}, []int{0, 1, 2})
	if err != nil {
		return nil, err
	}
	return op, nil
}

// begin sends the request and waits for the answer.
func (o *operation) begin(spec Spec, m supervise.Message, files []int) (*operation, error) {
	s := o.super
	o.group = s.pool.config.Cgroup.New(cgroup.Limits(spec.Limits))
	r := supervise.Request{
		Path: spec.Path, Dir: spec.Dir, Args: spec.Args, Env: spec.Env,
		Processes: spec.Limits.Processes, Memory: spec.Limits.Memory, Cgroup: o.group.Dir(),
		Pin: supervise.Pin(spec.Pin),
	}
	o.answer, o.exited, o.gone = make(chan error, 1), make(chan struct{}), make(chan struct{})
	if !s.assign(o) {
		s.pool.freed()
		o.drop(m, files)
		o.closePipes()
		o.group.End()
		return nil, errUnread
	}
	late := time.AfterFunc(answerBudget, s.kill)
	defer late.Stop()
	nudge := time.AfterFunc(nudgeAfter, s.wake) // the command may stop it before it has answered
	defer nudge.Stop()
	m.Seq = o.seq
	s.wake()
	err := s.request(m, r, files)
	o.drop(m, files)
	if err != nil {
		s.kill() // a request that was not sent whole starts nothing
		<-o.gone
		o.closePipes()
		return nil, errUnread
	}
	if err := <-o.answer; err != nil {
		o.closePipes()
		return nil, err
	}
	return o, nil
}

// assign makes o the operation of s; false if s is gone.
func (s *supervisor) assign(o *operation) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.end {
		return false
	}
	s.seq++
	o.seq, s.op = s.seq, o
	return true
}

// drop closes our copies of the child's ends.
func (o *operation) drop(m supervise.Message, files []int) {
	if m.Terminal {
		return // they are this process's own
	}
	for _, fd := range files {
		_ = unix.Close(fd)
	}
}

// pipes makes the pipes and returns the child's ends: blocking, as programs expect
// them, while ours wait in the poller.
func (o *operation) pipes(stdin bool) ([]int, error) {
	var theirs []int
	for i, end := range []**os.File{&o.stdin, &o.stdout, &o.stderr} {
		if i == 0 && !stdin {
			continue
		}
		var p [2]int
		if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
			for _, fd := range theirs {
				_ = unix.Close(fd)
			}
			o.closePipes()
			return nil, os.NewSyscallError("pipe2", err)
		}
		ours, other := p[0], p[1]
		if i == 0 {
			ours, other = p[1], p[0]
		}
		_, _ = unix.FcntlInt(uintptr(ours), unix.F_SETFL, unix.O_NONBLOCK) // cannot fail on a descriptor that is open
		*end = os.NewFile(uintptr(ours), "pipe")
		theirs = append(theirs, other)
	}
	return theirs, nil
}

func (o *operation) closePipes() {
	for _, f := range []*os.File{o.stdin, o.stdout, o.stderr} {
		if f != nil {
			_ = f.Close() // at most closed already
		}
	}
}

func startError(m supervise.Message) error {
	e := &StartError{Stage: StageExecute, Errno: syscall.Errno(m.Value)}
	if m.Directory {
		e.Stage = StageDirectory
	}
	return e
}

// answered passes the answer to start; false if there was one before.
func (o *operation) answered(err error) bool {
	select {
	case o.answer <- err:
		return true
	default:
		return false
	}
}

// exit notes how the child ended; false if it had ended before.
func (o *operation) exit(m supervise.Message) bool {
	if o.hasExited() {
		return false
	}
	status := syscall.WaitStatus(m.Value)
	o.result = route.Exit{Duration: time.Duration(m.Extra), Limited: m.Limited}
	if status.Signaled() {
		o.result.Signal, o.result.Core = signalName(status.Signal()), status.CoreDump()
		o.result.Limited = m.Limited || status.Signal() == syscall.SIGKILL && o.group.OutOfMemory()
	} else {
		o.result.Code = status.ExitStatus()
	}
	if m.Last {
		o.over(nil) // first, so that who waits for the exit finds nothing to kill
	}
	close(o.exited)
	return true
}

func (o *operation) hasExited() bool { return isClosed(o.exited) }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// over notes that nothing of the tree lives, or that some of it would not die.
func (o *operation) over(survive error) {
	o.group.End()
	o.survive = survive
	close(o.gone)
}

// lost ends the operation of a supervisor that died. unread: before the request was read.
func (o *operation) lost(unread bool, survive error) {
	if !o.hasExited() {
		o.err = ErrLost
		close(o.exited)
	}
	var answer error
	if unread {
		answer = errUnread
	}
	o.answered(answer) // if start still waits for it
	o.over(survive)
}

func signalName(s syscall.Signal) string {
	const rtmin = 34 // as the C library counts
	switch name := unix.SignalName(s); {
	case name != "":
		return name
	case s == rtmin:
		return "SIGRTMIN"
	case s > rtmin:
		return "SIGRTMIN+" + strconv.Itoa(int(s)-rtmin)
	}
	return "SIG" + strconv.Itoa(int(s))
}

func (o *operation) onClose(f func()) { o.whenDone = f }

// Stdin is the input pipe, an *os.File in the poller, or nil.
func (o *operation) Stdin() io.WriteCloser {
	if o.stdin == nil {
		return nil
	}
	return o.stdin
}

// Stdout is the output pipe, an *os.File in the poller.
func (o *operation) Stdout() io.ReadCloser { return o.stdout }

// Stderr is the error pipe, an *os.File in the poller.
func (o *operation) Stderr() io.ReadCloser { return o.stderr }

// Wait gives how the child itself ended; ErrLost if nobody can tell.
func (o *operation) Wait(ctx context.Context) (route.Exit, error) {
	if !o.hasExited() {
		select {
		case <-o.exited:
		case <-ctx.Done():
			return route.Exit{}, context.Cause(ctx)
		}
	}
	return o.result, o.err
}

// Terminate sends SIGTERM to the process group of the child, whether it still runs
// or not, and to the processes that have lost their parent.
func (o *operation) Terminate() error {
	if !isClosed(o.gone) && o.terminated.CompareAndSwap(false, true) {
		o.super.send(supervise.Terminate, o.seq)
	}
	return nil
}

// Kill sends SIGKILL to the whole tree, until nothing is left of it.
func (o *operation) Kill() error {
	if !isClosed(o.gone) && o.killed.CompareAndSwap(false, true) {
		o.super.send(supervise.Kill, o.seq)
	}
	return nil
}

// Close is route.Process's; the error matches ErrSurvivors or is nil.
func (o *operation) Close() error {
	o.closing.Do(func() {
		_ = o.Kill()
		o.closed = o.await()
		o.closePipes()
		if o.whenDone != nil {
			o.whenDone()
		}
	})
	return o.closed
}

// await waits until nothing lives, and does by force what the supervisor does not.
func (o *operation) await() error {
	if isClosed(o.gone) {
		return o.survive
	}
	budget := time.NewTimer(o.super.pool.patience)
	defer budget.Stop()
	for range 2 {
		select {
		case <-o.gone:
			return o.survive
		case <-budget.C:
			o.super.kill()
			budget.Reset(closeBudget + huntBudget)
		}
	}
	return errors.Join(ErrSurvivors, errNoAnswer)
}
