//go:build !linux

package process

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/lendcli/lend/localhost/route"
)

// closeBudget bounds the wait for a killed tree.
const closeBudget = 10 * time.Second

// backend starts each operation as one direct child: in a process group of its own
// (Unix), in a job object (Windows). What leaves the group is not found again.
type backend struct {
	config Config

	mu      sync.Mutex // guards what follows
	closed  bool
	running int
}

func newBackend(c Config) *backend { return &backend{config: c} }

func (b *backend) stop() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
}

func (b *backend) close() error { return nil }

func (b *backend) take() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.closed:
		return unavailable(ErrClosed)
	case b.running >= b.config.Most:
		return unavailable(ErrBusy)
	}
	b.running++
	return nil
}

func (b *backend) free() {
	b.mu.Lock()
	b.running--
	b.mu.Unlock()
}

// direct is one command. It is a route.Process.
type direct struct {
	cmd   *exec.Cmd
	tree  tree
	began time.Time
	// Our ends of the pipes; stdin is nil if the child has none.
	stdin          io.WriteCloser
	stdout, stderr *os.File

	exited  chan struct{} // closed when result and err are set, and the child is reaped
	result  route.Exit
	err     error
	closing sync.Once
	closed  error
	onDone  func()
}

func (b *backend) start(_ context.Context, s Spec) (running, error) {
	if s.Limits != (route.Limits{}) {
		return nil, unavailable(ErrLimits)
	}
	d := &direct{cmd: command(s)}
	theirs, err := d.pipes(s.Stdin)
	if err != nil {
		return nil, unavailable(err)
	}
	return b.begin(d, theirs)
}

func (b *backend) startOnTerminal(_ context.Context, s Spec) (running, error) {
	d := &direct{cmd: command(s)}
	d.cmd.Stdin, d.cmd.Stdout, d.cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return b.begin(d, nil)
}

func command(s Spec) *exec.Cmd {
	env := s.Env
	if env == nil {
		env = []string{} // nil would mean ours
	}
	return &exec.Cmd{Path: s.Path, Args: s.Args, Env: env, Dir: s.Dir}
}

func (b *backend) begin(d *direct, theirs []*os.File) (running, error) {
	err := b.take()
	if err == nil {
		d.began = time.Now()
		if err = d.tree.start(d.cmd, theirs != nil); err != nil {
			b.free()
			err = startError(d.cmd.Dir, err)
		}
	}
	closeAll(theirs)
	if err != nil {
		d.closePipes()
		return nil, err
	}
	d.exited = make(chan struct{})
	go func() { // ends with the child, which Close kills
		d.reap()
		b.free()
	}()
	return d, nil
}

// pipes makes the pipes and returns the child's ends.
func (d *direct) pipes(stdin bool) (theirs []*os.File, err error) {
	defer func() {
		if err != nil {
			closeAll(theirs)
			d.closePipes()
		}
	}()
	if stdin {
		r, w, err := os.Pipe()
		if err != nil {
			return theirs, err
		}
		d.stdin, d.cmd.Stdin = w, r
		theirs = append(theirs, r)
	}
	for _, end := range []struct {
		ours **os.File
		cmd  *io.Writer
	}{{&d.stdout, &d.cmd.Stdout}, {&d.stderr, &d.cmd.Stderr}} {
		r, w, err := os.Pipe()
		if err != nil {
			return theirs, err
		}
		*end.ours, *end.cmd = r, w
		theirs = append(theirs, w)
	}
	return theirs, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close() // the child has its own
	}
}

func (d *direct) closePipes() {
	if d.stdin != nil {
		_ = d.stdin.Close()
	}
	for _, f := range []*os.File{d.stdout, d.stderr} {
		if f != nil {
			_ = f.Close()
		}
	}
}

func startError(dir string, err error) error {
	e := &StartError{Stage: StageExecute, Errno: syscall.EIO}
	_ = errors.As(err, &e.Errno)
	if st, serr := os.Stat(dir); serr != nil || !st.IsDir() {
		e.Stage = StageDirectory
	}
	return e
}

// reap waits for the child to end.
func (d *direct) reap() {
	d.tree.exited()
	err := d.cmd.Wait()
	d.result = route.Exit{Duration: time.Since(d.began)}
	var failed *exec.ExitError
	if err != nil && !errors.As(err, &failed) {
		d.err = err
	} else {
		describe(&d.result, d.cmd.ProcessState)
	}
	close(d.exited)
}

func (d *direct) onClose(f func()) { d.onDone = f }

func (d *direct) Stdin() io.WriteCloser { return d.stdin }
func (d *direct) Stdout() io.ReadCloser { return d.stdout }
func (d *direct) Stderr() io.ReadCloser { return d.stderr }

func (d *direct) Wait(ctx context.Context) (route.Exit, error) {
	select {
	case <-d.exited:
		return d.result, d.err
	default:
	}
	select {
	case <-d.exited:
		return d.result, d.err
	case <-ctx.Done():
		return route.Exit{}, context.Cause(ctx)
	}
}

func (d *direct) Terminate() error { return d.tree.terminate() }
func (d *direct) Kill() error      { return d.tree.kill() }

func (d *direct) Close() error {
	d.closing.Do(func() {
		d.closed = d.Kill()
		budget := time.NewTimer(closeBudget)
		defer budget.Stop()
		select {
		case <-d.exited:
			d.closed = errors.Join(d.closed, d.tree.close())
		case <-budget.C:
			d.closed = errors.Join(d.closed, ErrSurvivors)
		}
		d.closePipes()
		if d.onDone != nil {
			d.onDone()
		}
	})
	return d.closed
}

// Owns is false: without supervisors a descendant cannot be told.
func (t *Transport) Owns(int) bool { return false }

// Supervisors is 0: there are none.
func (t *Transport) Supervisors() (busy, idle int) { return 0, 0 }

func holdTerminal() (restore func()) { return holdInterrupts() }
