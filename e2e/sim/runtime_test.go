package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/lendcli/lend/localhost/route"
)

// pattern is byte i of the stream that salt names: the input, an output.
func pattern(salt, i int) byte { return byte(salt ^ i ^ i>>8 ^ i>>16) }

func fill(b []byte, salt, from int) []byte {
	for i := range b {
		b[i] = pattern(salt, from+i)
	}
	return b
}

// agrees tells whether b is what stands at from, and where it is not.
func agrees(b []byte, salt, from int) error {
	for i := range b {
		if b[i] != pattern(salt, from+i) {
			return fmt.Errorf("byte %d is %#x and not %#x", from+i, b[i], pattern(salt, from+i))
		}
	}
	return nil
}

const (
	saltIn, saltErr = 0x00, 0x5a // the output echoes the input
	pipeSize        = 64 << 10
)

// pipe is a pipe whose both ends wait on the bubble's clock, not in the kernel.
type pipe struct {
	mu       sync.Mutex // guards what follows
	cond     sync.Cond
	buf      bytes.Buffer
	noWriter bool
	noReader bool
}

type (
	readEnd  struct{ *pipe }
	writeEnd struct{ *pipe }
)

func newPipe() (readEnd, writeEnd) {
	p := &pipe{}
	p.cond.L = &p.mu
	return readEnd{p}, writeEnd{p}
}

func (p readEnd) Read(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		switch {
		case p.noReader:
			return 0, io.ErrClosedPipe
		case p.buf.Len() > 0:
			defer p.cond.Broadcast()
			return p.buf.Read(b)
		case p.noWriter:
			return 0, io.EOF
		}
		p.cond.Wait()
	}
}

func (p writeEnd) Write(b []byte) (n int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for n < len(b) {
		switch room := pipeSize - p.buf.Len(); {
		case p.noWriter:
			return n, io.ErrClosedPipe
		case p.noReader:
			return n, syscall.EPIPE
		case room > 0:
			m := min(room, len(b)-n)
			p.buf.Write(b[n : n+m])
			n += m
			p.cond.Broadcast()
		default:
			p.cond.Wait()
		}
	}
	return n, nil
}

func (p readEnd) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.noReader = true
	p.cond.Broadcast()
	return nil
}

func (p writeEnd) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.noWriter = true
	p.cond.Broadcast()
	return nil
}

// record is what happened on the machine, over all lives of its gateway.
type record struct {
	mu     sync.Mutex // guards what follows
	starts map[int]int
	exits  map[int][]route.Exit
	bad    []error // a byte that no caller had sent
	alive  int
}

func (r *record) count(id int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.starts[id]
}

func (r *record) complain(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bad = append(r.bad, err)
}

// machineRuntime fulfils gateway.Runtime for one life of a gateway.
type machineRuntime struct {
	record     *record
	descriptor route.Descriptor

	mu    sync.Mutex // guards what follows
	dead  bool
	procs map[*proc]bool
}

func (r *machineRuntime) Resolve(q route.Query) (route.Descriptor, error) {
	if q.Connector != r.descriptor.Identity.Connector || q.Version != r.descriptor.Identity.Version {
		return route.Descriptor{}, route.ErrNotFound
	}
	return r.descriptor, nil
}

var errPowerOff = errors.New("the machine is off")

func (r *machineRuntime) Start(_ context.Context, q route.StartRequest) (route.Process, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.dead {
		return nil, errPowerOff
	}
	job, err := parseJob(q.Call.Arguments)
	if err != nil {
		return nil, err
	}
	r.record.mu.Lock()
	r.record.starts[job.id]++
	r.record.alive++
	r.record.mu.Unlock()
	p := newProc(job, q.Stdin)
	p.onClose = func() {
		r.mu.Lock()
		delete(r.procs, p)
		r.mu.Unlock()
		r.record.mu.Lock()
		r.record.alive--
		r.record.mu.Unlock()
	}
	r.procs[p] = true
	go p.main(r.record)
	return p, nil
}

// freeze starts no process any more.
func (r *machineRuntime) freeze() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dead = true
}

// off ends all processes.
func (r *machineRuntime) off() {
	r.mu.Lock()
	procs := make([]*proc, 0, len(r.procs))
	for p := range r.procs {
		procs = append(procs, p)
	}
	r.mu.Unlock()
	for _, p := range procs {
		_ = p.Kill()
	}
}

// job is what the arguments of an echo say.
type job struct {
	id, code, pause int
}

func parseJob(args []string) (j job, err error) {
	for _, a := range args[1:] {
		name, value, _ := strings.Cut(a, "=")
		n, err := strconv.Atoi(value)
		if err != nil {
			return j, err
		}
		switch name {
		case "--id":
			j.id = n
		case "--code":
			j.code = n
		case "--pause":
			j.pause = n
		}
	}
	return j, nil
}

type proc struct {
	job             job
	stdin           bool
	in              readEnd
	toIn            writeEnd
	out, err        writeEnd
	fromOut         readEnd
	fromErr         readEnd
	exited          chan struct{}
	exit            route.Exit // valid once exited is closed
	killed, stopped chan struct{}
	kill, stop      sync.Once
	closing         sync.Once
	onClose         func()
}

func newProc(j job, stdin bool) *proc {
	p := &proc{job: j, stdin: stdin, exited: make(chan struct{}), killed: make(chan struct{}), stopped: make(chan struct{})}
	p.in, p.toIn = newPipe()
	p.fromOut, p.out = newPipe()
	p.fromErr, p.err = newPipe()
	return p
}

// main echoes the input, looks at each byte of it, and writes an eighth as much
// to standard error. It returns soon after the pipes are closed.
func (p *proc) main(r *record) {
	began := time.Now()
	code := p.echo(r)
	p.exit = route.Exit{Code: code, Duration: time.Since(began)}
	select {
	case <-p.killed:
		p.exit = route.Exit{Signal: "SIGKILL", Duration: time.Since(began)}
	case <-p.stopped:
		p.exit = route.Exit{Signal: "SIGTERM", Duration: time.Since(began)}
	default:
	}
	r.mu.Lock()
	r.exits[p.job.id] = append(r.exits[p.job.id], p.exit)
	r.mu.Unlock()
	p.closeChild()
	close(p.exited)
}

func (p *proc) echo(r *record) int {
	buf, noise := make([]byte, 32<<10), make([]byte, 4<<10)
	got, told := 0, 0
	for {
		n, err := p.in.Read(buf)
		if bad := agrees(buf[:n], saltIn, got); bad != nil {
			r.complain(fmt.Errorf("the child of %d read: %w", p.job.id, bad))
		}
		if _, err := p.out.Write(buf[:n]); err != nil {
			return 1
		}
		got += n
		if m := got/8 - told; m > 0 {
			if _, err := p.err.Write(fill(noise[:m], saltErr, told)); err != nil {
				return 1
			}
			told += m
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				return 1
			}
			return p.job.code
		}
		select {
		case <-time.After(time.Duration(p.job.pause) * time.Millisecond):
		case <-p.stopped:
			return 1
		case <-p.killed:
			return 1
		}
	}
}

func (p *proc) closeChild() {
	_, _, _ = p.in.Close(), p.out.Close(), p.err.Close()
}

func (p *proc) Stdin() io.WriteCloser {
	if !p.stdin {
		return nil
	}
	return p.toIn
}

func (p *proc) Stdout() io.ReadCloser { return p.fromOut }
func (p *proc) Stderr() io.ReadCloser { return p.fromErr }

func (p *proc) Wait(ctx context.Context) (route.Exit, error) {
	select {
	case <-p.exited:
		return p.exit, nil
	case <-ctx.Done():
		return route.Exit{}, ctx.Err()
	}
}

func (p *proc) Terminate() error {
	p.stop.Do(func() { close(p.stopped); _ = p.in.Close() })
	return nil
}

func (p *proc) Kill() error {
	p.kill.Do(func() { close(p.killed); p.closeChild() })
	return nil
}

func (p *proc) Close() error {
	p.closing.Do(func() {
		_ = p.Kill()
		<-p.exited
		_, _, _ = p.fromOut.Close(), p.fromErr.Close(), p.toIn.Close()
		p.onClose()
	})
	return nil
}
