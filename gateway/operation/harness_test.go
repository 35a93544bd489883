package operation

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lendcli/lend/gateway/internal/fakehost"
	"github.com/lendcli/lend/localhost/route"
	"github.com/lendcli/lend/protocol"
	"github.com/lendcli/lend/protocol/name"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 20 * time.Second

// harness runs one operation with a program and as many callers as a test wants.
type harness struct {
	t       *testing.T
	op      *Operation
	process *fakehost.Process
	budget  *Budget

	mu   sync.Mutex // guards ends
	ends []protocol.Exit
}

func start(t *testing.T, cfg Config, stdin bool, program fakehost.Program) *harness {
	t.Helper()
	return startAs(t, cfg, stdin, program, func(p *fakehost.Process) route.Process { return p })
}

// startAs is start of a process that the operation sees as something else.
func startAs(t *testing.T, cfg Config, stdin bool, program fakehost.Program, as func(*fakehost.Process) route.Process) *harness {
	t.Helper()
	h := &harness{t: t, budget: cfg.Budget}
	if h.budget == nil {
		h.budget = NewBudget(64 << 20)
		cfg.Budget = h.budget
	}
	if cfg.Limits == (protocol.Limits{}) {
		cfg.Limits = unlimited()
	}
	cfg.Token = bytes.Repeat([]byte{7}, protocol.TokenSize)
	cfg.OnEnd = func(e protocol.Exit) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.ends = append(h.ends, e)
	}
	p, err := fakehost.Start(program, nil, stdin)
	require.NoError(t, err)
	h.process = p
	h.op = New(cfg)
	h.op.Run(as(p))
	t.Cleanup(func() {
		h.op.Cancel(CauseShutdown)
		h.op.Drop()
		h.wait(h.op.Done())
		require.Zero(t, h.budget.Used(), "bytes are still kept")
		h.mu.Lock()
		defer h.mu.Unlock()
		require.Len(t, h.ends, 1, "there is exactly one end")
	})
	return h
}

func unlimited() protocol.Limits {
	return protocol.Limits{
		Stdin: protocol.NoLimit, Stdout: protocol.NoLimit, Stderr: protocol.NoLimit,
		Run: time.Minute, Detached: time.Minute,
	}
}

func (h *harness) wait(c <-chan struct{}) {
	h.t.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		require.FailNow(h.t, "waited too long")
	}
}

// caller is the other end of one stream.
type caller struct {
	t      *testing.T
	conn   net.Conn
	frames *protocol.Reader
	*protocol.Writer
	served chan error

	accepted       *protocol.Accepted
	stdout, stderr []byte
	exit           *protocol.Exit
	closed         bool // StdinClosed came
	acked          protocol.Ack
	noAcks         bool
	taken          chan uint64 // the gateway's acknowledgements of input
}

type first struct {
	stdin, attach bool
	token         bool
	stdout        uint64
	stderr        uint64
}

// dial opens a stream over TCP, with a small buffer, and has it served.
func (h *harness) dial(f first) *caller {
	h.t.Helper()
	conn, far := pipe(h.t)
	c := newCaller(h.t, conn)
	require.NoError(h.t, c.WriteFrame(firstFrame(h.t, f)))
	frames := protocol.NewReader(far, protocol.Gateway)
	_, err := frames.Read()
	require.NoError(h.t, err)
	go func() {
		err := h.op.Serve(Session{
			Stream: far, Frames: frames, Writer: protocol.NewWriter(far),
			Reset:    func(protocol.Code) { _ = far.Close() },
			Attached: f.attach, Input: !f.attach || f.token,
			Stdout: f.stdout, Stderr: f.stderr,
		})
		_ = far.Close()
		c.served <- err
	}()
	return c
}

// pipe is a TCP connection of two ends.
func pipe(t *testing.T) (near, far net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	near, err = net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = near.Close() })
	far, err = l.Accept()
	require.NoError(t, err)
	return near, far
}

func newCaller(t *testing.T, conn net.Conn) *caller {
	t.Helper()
	return &caller{
		t: t, conn: conn, frames: protocol.NewReader(conn, protocol.Caller), Writer: protocol.NewWriter(conn),
		served: make(chan error, 1), taken: make(chan uint64, 1),
	}
}

func firstFrame(t *testing.T, f first) protocol.Frame {
	t.Helper()
	key, err := name.ParseConnectorKey("fx")
	require.NoError(t, err)
	version, err := name.ParseVersion("1.0.0")
	require.NoError(t, err)
	command, err := name.ParseCommand("run")
	require.NoError(t, err)
	op, err := name.ParseOperationID("operation-0000001")
	require.NoError(t, err)
	issuer, err := name.PeerIDFromKey(bytes.Repeat([]byte{1}, 32))
	require.NoError(t, err)
	invocation, err := name.ParseInvocationID("i")
	require.NoError(t, err)
	if !f.attach {
		return &protocol.Start{Operation: op, Lease: [][]byte{{1}}, Connector: key, Version: version, Command: command, Stdin: f.stdin}
	}
	a := &protocol.Attach{Issuer: issuer, Invocation: invocation, Operation: op, Stdout: f.stdout, Stderr: f.stderr}
	if f.token {
		a.Token = bytes.Repeat([]byte{7}, protocol.TokenSize)
	}
	return a
}

// next reads one frame and takes it into account.
func (c *caller) next() (protocol.Frame, error) {
	_ = c.conn.SetReadDeadline(time.Now().Add(patience))
	f, err := c.frames.Read()
	if err != nil {
		return nil, err
	}
	switch f := f.(type) {
	case *protocol.Accepted:
		c.accepted = f
		c.acked.Stdout, c.acked.Stderr = f.Stdout, f.Stderr
	case *protocol.Data:
		if f.Stream == protocol.Stdout {
			c.stdout = append(c.stdout, f.Payload...)
		} else {
			c.stderr = append(c.stderr, f.Payload...)
		}
		c.ack()
	case *protocol.Ack:
		select {
		case <-c.taken:
		default:
		}
		c.taken <- f.Stdin
	case *protocol.StdinClosed:
		c.closed = true
	case *protocol.Exit:
		c.exit = f
	}
	return f, nil
}

func (c *caller) ack() {
	out, errs := c.frames.Offset(protocol.Stdout), c.frames.Offset(protocol.Stderr)
	if c.noAcks || out+errs-c.acked.Stdout-c.acked.Stderr < protocol.AckEvery {
		return
	}
	c.acked = protocol.Ack{Stdout: out, Stderr: errs}
	_ = c.WriteFrame(&c.acked)
}

// finish reads to the end and acknowledges it.
func (c *caller) finish() protocol.Exit {
	c.t.Helper()
	for c.exit == nil {
		_, err := c.next()
		require.NoError(c.t, err)
	}
	require.NoError(c.t, c.WriteFrame(&protocol.ExitAck{}))
	_, err := c.next()
	require.ErrorIs(c.t, err, io.EOF, "nothing follows the end")
	require.NoError(c.t, c.result())
	return *c.exit
}

func (c *caller) result() error {
	select {
	case err := <-c.served:
		return err
	case <-time.After(patience):
		return errors.New("not served in time")
	}
}

// until reads frames until f is true.
func (c *caller) until(f func() bool) {
	c.t.Helper()
	for !f() {
		_, err := c.next()
		require.NoError(c.t, err)
	}
}

// send sends input at the right offset.
func (c *caller) send(offset uint64, b []byte) error {
	for len(b) > 0 {
		n := min(len(b), protocol.MaxData)
		if err := c.WriteFrame(&protocol.Data{Offset: offset, Payload: b[:n]}); err != nil {
			return err
		}
		offset, b = offset+uint64(n), b[n:]
	}
	return nil
}

// stream sends all of b and its end, within the window that a caller keeps to.
func (c *caller) stream(b []byte) error {
	var sent, acked uint64
	for sent < uint64(len(b)) {
		for sent-acked >= protocol.MinWindow {
			select {
			case acked = <-c.taken:
			case <-time.After(patience):
				return errors.New("no acknowledgement")
			}
		}
		n := min(protocol.MaxData, len(b)-int(sent))
		if err := c.send(sent, b[sent:int(sent)+n]); err != nil {
			return err
		}
		sent += uint64(n)
	}
	return c.WriteFrame(&protocol.StdinEnd{Total: sent})
}

// pattern is n bytes that tell their place.
func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i ^ i>>8 ^ i>>16)
	}
	return b
}

// print writes n bytes and exits.
func printer(n int) fakehost.Program {
	return func(c *fakehost.Child) route.Exit {
		if _, err := c.Stdout.Write(pattern(n)); err != nil {
			return route.Exit{Signal: "SIGPIPE"}
		}
		return route.Exit{}
	}
}

// sleeper runs until it is asked to end.
func sleeper(c *fakehost.Child) route.Exit {
	<-c.Terminated
	return route.Exit{Signal: "SIGTERM"}
}

func copyAll(dst *os.File, src *os.File) { _, _ = io.Copy(dst, src) }

// replay has the end of an operation that is over told to a caller.
func replay(t *testing.T, end protocol.Exit) *caller {
	t.Helper()
	near, far := pipe(t)
	c := newCaller(t, near)
	require.NoError(t, c.WriteFrame(firstFrame(t, first{attach: true})))
	frames := protocol.NewReader(far, protocol.Gateway)
	_, err := frames.Read()
	require.NoError(t, err)
	go func() {
		c.served <- Replay(Session{
			Stream: far, Frames: frames, Writer: protocol.NewWriter(far),
			Reset: func(protocol.Code) { _ = far.Close() },
		}, end)
	}()
	return c
}

// brokenWait is a process whose transport has lost it.
type brokenWait struct{ *fakehost.Process }

func (p brokenWait) Wait(context.Context) (route.Exit, error) {
	return route.Exit{}, errors.New("supervisor lost")
}
