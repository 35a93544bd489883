package operation

import (
	"context"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/gateway/internal/fakehost"
	"github.com/lendcli/lend/localhost/route"
	"github.com/lendcli/lend/protocol"
)

// faulty is a process in which one thing panics, the first time or always.
type faulty struct {
	route.Process
	at     string
	always bool
	hit    atomic.Bool
}

func (f *faulty) do(what string) {
	if f.at == what && (!f.hit.Swap(true) || f.always) {
		panic(what)
	}
}

type faultyPipe struct {
	f    *faulty
	name string
	r    io.ReadCloser
	w    io.WriteCloser
}

func (p faultyPipe) Read(b []byte) (int, error)  { p.f.do(p.name); return p.r.Read(b) }
func (p faultyPipe) Write(b []byte) (int, error) { p.f.do(p.name); return p.w.Write(b) }

func (p faultyPipe) Close() error {
	p.f.do("close " + p.name)
	if p.r != nil {
		return p.r.Close()
	}
	return p.w.Close()
}

func (f *faulty) Stdout() io.ReadCloser {
	return faultyPipe{f: f, name: "stdout", r: f.Process.Stdout()}
}

func (f *faulty) Stderr() io.ReadCloser {
	return faultyPipe{f: f, name: "stderr", r: f.Process.Stderr()}
}

func (f *faulty) Stdin() io.WriteCloser { return faultyPipe{f: f, name: "stdin", w: f.Process.Stdin()} }
func (f *faulty) Terminate() error      { f.do("terminate"); return f.Process.Terminate() }
func (f *faulty) Kill() error           { f.do("kill"); return f.Process.Kill() }

func (f *faulty) Wait(ctx context.Context) (route.Exit, error) {
	f.do("wait")
	return f.Process.Wait(ctx)
}

func (f *faulty) Close() error {
	_ = f.Process.Close() // a fault that leaves a tree behind is the transport's
	f.do("close")
	return nil
}

// shortly is a grace that a test waits for.
const shortly = 200 * time.Millisecond

// A panic anywhere ends one operation, with INTERNAL, and leaves nothing of it. The
// program's own panic would end the test.
func TestPanicEndsOneOperation(t *testing.T) {
	t.Parallel()
	for _, at := range []string{
		"wait", "stdout", "stderr", "stdin", "close stdout", "close stderr", "close stdin", "terminate", "kill", "close", "on end",
	} {
		for _, always := range []bool{false, true} {
			title := at
			if always {
				title += ", always"
			}
			t.Run(title, func(t *testing.T) {
				t.Parallel()
				other := start(t, Config{}, true, func(c *fakehost.Child) route.Exit {
					_, _ = io.Copy(c.Stdout, c.Stdin)
					return route.Exit{}
				})
				healthy := other.dial(first{stdin: true})

				f := &faulty{at: at, always: always}
				var ends, dones atomic.Int64
				var last atomic.Pointer[protocol.Exit]
				op := New(Config{
					Token: make([]byte, protocol.TokenSize), Limits: unlimited(), Budget: other.budget, Grace: shortly,
					OnEnd: func(x protocol.Exit) {
						ends.Add(1)
						last.Store(&x)
						f.do("on end")
					},
					OnDone: func() { dones.Add(1) },
				})
				p, err := fakehost.Start(func(c *fakehost.Child) route.Exit {
					_, _ = c.Stdout.WriteString("out")
					_, _ = c.Stderr.WriteString("err")
					if at == "terminate" || at == "kill" || at == "close stdin" {
						op.Cancel(CauseCaller)
						<-c.Killed
						return route.Exit{Signal: "SIGKILL"}
					}
					_, _ = io.ReadFull(c.Stdin, make([]byte, 2))
					return route.Exit{}
				}, nil, true)
				require.NoError(t, err)
				f.Process = p
				op.Run(f)
				h := &harness{t: t, op: op, budget: other.budget}
				c := h.dial(first{stdin: true})
				_ = c.send(0, []byte("in"))
				for c.exit == nil {
					_, err := c.next()
					require.NoError(t, err, "the caller is told")
				}
				want := protocol.CodeInternal
				if c.exit.Code == protocol.CodeCancelled { // it was stopped for that before the fault
					want = protocol.CodeCancelled
				}
				if at != "on end" { // the end was known
					require.Equal(t, want, c.exit.Code)
				}
				_ = c.WriteFrame(&protocol.ExitAck{})
				_ = c.result()
				h.wait(op.Done())
				require.Equal(t, int64(1), ends.Load(), "the end is recorded once")
				if at != "on end" {
					require.Equal(t, c.exit.Code, last.Load().Code)
				}
				require.Equal(t, int64(1), dones.Load())
				_, err = p.Wait(t.Context())
				require.NoError(t, err, "the process is gone")

				require.NoError(t, healthy.send(0, []byte("still here")))
				require.NoError(t, healthy.WriteFrame(&protocol.StdinEnd{Total: 10}))
				require.Equal(t, protocol.CodeOK, healthy.finish().Code)
				require.Equal(t, "still here", string(healthy.stdout))
			})
		}
	}
}

// faultyStream is a stream that panics when output is written to it.
type faultyStream struct {
	Stream
	hit atomic.Bool
}

func (s *faultyStream) Write(b []byte) (int, error) {
	if len(b) > 200 && !s.hit.Swap(true) {
		panic("stream")
	}
	return s.Stream.Write(b)
}

// A panic on the side of a stream lets it go: nothing stays attached for ever.
func TestPanicOfAStream(t *testing.T) {
	t.Parallel()
	h := start(t, Config{Grace: shortly}, false, func(c *fakehost.Child) route.Exit {
		_, _ = c.Stdout.Write(make([]byte, 1000))
		<-c.Terminated
		return route.Exit{Signal: "SIGTERM"}
	})
	conn, far := pipe(t)
	c := newCaller(t, conn)
	require.NoError(t, c.WriteFrame(firstFrame(t, first{})))
	frames := protocol.NewReader(far, protocol.Gateway)
	_, err := frames.Read()
	require.NoError(t, err)
	go func() {
		c.served <- h.op.Serve(Session{
			Stream: &faultyStream{Stream: far}, Frames: frames, Writer: protocol.NewWriter(far),
			Reset: func(protocol.Code) { _ = far.Close() }, Input: true,
		})
	}()
	require.Eventually(t, func() bool { _, ended := h.op.Ended(); return ended }, patience, time.Millisecond)
	exit, _ := h.op.Ended()
	require.Equal(t, protocol.CodeInternal, exit.Code)
	_ = conn.Close()
	require.Error(t, c.result())
	require.False(t, h.op.Attached())
}
