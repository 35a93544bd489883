// Package fakehost is an implementation host for tests of the gateway: its
// processes are functions with real pipes, and it counts what it was asked.
package fakehost

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"github.com/lendcli/lend/localhost/route"
)

// Child is what a Program runs with. Its files are closed when the program
// returns, but for those that it has taken away with Keep.
type Child struct {
	Arguments []string
	Stdin     *os.File // nil: none
	Stdout    *os.File
	Stderr    *os.File
	// Terminated is closed when the tree is asked to end, Killed when it must.
	Terminated, Killed <-chan struct{}
	p                  *Process
}

// Keep hands an output to something that outlives the program, as a grandchild
// would: it is closed only when the tree is killed.
func (c *Child) Keep(f *os.File) {
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	c.p.kept = append(c.p.kept, f)
}

// Program is the body of a process; it must return soon after Killed is closed.
type Program func(c *Child) route.Exit

// Process runs one Program.
type Process struct {
	stdin          *os.File
	stdout, stderr *os.File
	terminated     chan struct{}
	killed         chan struct{}
	exited         chan struct{}
	exit           route.Exit // valid once exited is closed
	terminate      sync.Once
	kill           sync.Once
	closing        sync.Once
	child          []*os.File
	mu             sync.Mutex // guards kept
	kept           []*os.File
	onClose        func()
}

// Start runs program.
func Start(program Program, args []string, stdin bool) (*Process, error) {
	p := &Process{terminated: make(chan struct{}), killed: make(chan struct{}), exited: make(chan struct{})}
	c := &Child{Arguments: args, Terminated: p.terminated, Killed: p.killed, p: p}
	var err error
	if stdin {
		if c.Stdin, p.stdin, err = os.Pipe(); err != nil {
			return nil, err
		}
		p.child = append(p.child, c.Stdin)
	}
	var err2 error
	p.stdout, c.Stdout, err = os.Pipe()
	p.stderr, c.Stderr, err2 = os.Pipe()
	if err := errors.Join(err, err2); err != nil {
		return nil, err
	}
	p.child = append(p.child, c.Stdout, c.Stderr)
	began := time.Now()
	go func() {
		exit := program(c)
		exit.Duration = time.Since(began)
		p.exit = exit
		p.closeChild()
		close(p.exited)
	}()
	return p, nil
}

func (p *Process) closeChild() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.child {
		kept := false
		for _, k := range p.kept {
			kept = kept || k == f
		}
		if !kept {
			_ = f.Close()
		}
	}
}

// Stdin is nil if there is none.
func (p *Process) Stdin() io.WriteCloser {
	if p.stdin == nil {
		return nil
	}
	return p.stdin
}

// Stdout is the parent's end.
func (p *Process) Stdout() io.ReadCloser { return p.stdout }

// Stderr is the parent's end.
func (p *Process) Stderr() io.ReadCloser { return p.stderr }

// Wait waits for the program to return.
func (p *Process) Wait(ctx context.Context) (route.Exit, error) {
	select {
	case <-p.exited:
		return p.exit, nil
	case <-ctx.Done():
		return route.Exit{}, ctx.Err()
	}
}

// Terminate closes Child.Terminated.
func (p *Process) Terminate() error {
	p.terminate.Do(func() { close(p.terminated) })
	return nil
}

// Kill closes Child.Killed, and every file of the child.
func (p *Process) Kill() error {
	p.kill.Do(func() {
		close(p.killed)
		for _, f := range p.child {
			_ = f.Close()
		}
	})
	return nil
}

// Close kills what is left and closes the pipes.
func (p *Process) Close() error {
	p.closing.Do(func() {
		_ = p.Kill()
		<-p.exited
		_ = p.stdout.Close()
		_ = p.stderr.Close()
		if p.stdin != nil {
			_ = p.stdin.Close()
		}
		if p.onClose != nil {
			p.onClose()
		}
	})
	return nil
}
