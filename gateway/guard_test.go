package gateway

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/protocol"
)

// sources are the parsed files of the package, without tests.
func sources(t *testing.T) map[string]*ast.File {
	t.Helper()
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	out := map[string]*ast.File{}
	for _, f := range files {
		if !strings.HasSuffix(f, "_test.go") {
			out[f], err = parser.ParseFile(token.NewFileSet(), f, nil, 0)
			require.NoError(t, err)
		}
	}
	require.NotEmpty(t, out)
	return out
}

// TestOnlyAdmissionMakesACapability: one place makes it, one place starts with it.
func TestOnlyAdmissionMakesACapability(t *testing.T) {
	t.Parallel()
	made, started := map[string]int{}, map[string]int{}
	for file, f := range sources(t) {
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CompositeLit:
				if id, ok := n.Type.(*ast.Ident); ok && id.Name == "capability" {
					made[file]++
				}
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.SelectorExpr); ok && x.Sel.Name == "runtime" && n.Sel.Name == "Start" {
					started[file]++
				}
			}
			return true
		})
	}
	require.Equal(t, map[string]int{"admit.go": 1}, made)
	require.Equal(t, map[string]int{"capability.go": 1}, started)
}

// TestOneFunctionRefuses: nobody else makes a frame of an error.
func TestOneFunctionRefuses(t *testing.T) {
	t.Parallel()
	for file := range sources(t) {
		b, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NotContains(t, string(b), "&protocol.Refused{", "%s makes a refusal by hand", file)
	}
}

func TestSlowStartIsCutOff(t *testing.T) {
	if os.Getenv("LEND_TEST_FULL") == "" {
		t.Skip("needs LEND_TEST_FULL=1: waits for the deadline of a first frame")
	}
	t.Parallel()
	for _, transport := range transports() {
		t.Run(transport, func(t *testing.T) {
			w := newWorld(t)
			d, l := w.dial(w.agent, transport), w.lease()
			start := encode(t, w.start(l, "print", "--size=1"))
			slow := d.stream(protocol.RunID)
			_, err := slow.Write(start[:len(start)-1])
			require.NoError(t, err)
			began := time.Now()
			_, err = protocol.NewReader(slow, protocol.Caller).Read()
			require.Error(t, err)
			require.InDelta(t, protocol.StartTimeout.Seconds(), time.Since(began).Seconds(), 3)
			d.run(w.start(l, "print", "--size=1")).finish()
			require.Equal(t, int64(1), w.host.Starts.Load())
		})
	}
}

func TestUnreadStreamsAreCountedOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d, l := w.dial(w.agent, "tcp"), w.lease()
	for range 5 {
		d.run(w.start(l, "print", "--size=1")).finish()
		d.run(w.start(l, "print", "--nope")).wantRefused(protocol.CodeArgumentRejected)
	}
	eventually(t, func() bool { return w.node.door.Unread(d.host.ID()) == 0 })
}

func TestOnlyOneStreamFollows(t *testing.T) {
	t.Parallel()
	for _, transport := range transports() {
		t.Run(transport, func(t *testing.T) {
			w := newWorld(t)
			d, l := w.dial(w.agent, transport), w.lease()
			s := w.start(l, "cat")
			one := d.run(s).answer()
			require.NoError(t, one.WriteFrame(&protocol.Data{Payload: []byte("abc")}))
			one.until(func() bool { return len(one.stdout) == 3 })

			d.run(w.attach(s, nil, 0)).wantRefused(protocol.CodeBusy)

			two := d.run(w.attach(s, one.accepted.Token, 3)).answer()
			require.True(t, two.accepted.Attached)
			require.Equal(t, uint64(3), two.accepted.Stdin)
			require.Error(t, one.next(), "the first one is supplanted")
			require.NoError(t, two.WriteFrame(&protocol.Data{Offset: 3, Payload: []byte("def")}))
			require.NoError(t, two.WriteFrame(&protocol.StdinEnd{Total: 6}))
			require.Equal(t, uint64(6), two.finish().Stdin)
			require.Equal(t, "def", string(two.stdout))
			d.run(w.attach(s, nil, 99)).finish() // ended: totals say what there was
		})
	}
}

func TestAttachBeyondTheOutput(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d, l := w.dial(w.agent, "tcp"), w.lease()
	s := w.start(l, "sleep")
	r := d.run(s).answer()
	d.run(w.attach(s, r.accepted.Token, 1)).wantRefused(protocol.CodeProtocolViolation)
	w.cancel(d, s)
	r.finish()
}

func TestNewWorkIsRefusedDuringShutdown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d, l := w.dial(w.agent, "tcp"), w.lease()
	r := d.run(w.start(l, "sleep")).answer()
	closed := make(chan error, 1)
	go func() { closed <- w.node.Close() }()
	r.until(func() bool { return r.exit != nil })
	d.run(w.start(l, "sleep")).wantRefused(protocol.CodeShuttingDown)
	require.NoError(t, r.WriteFrame(&protocol.ExitAck{}))
	require.NoError(t, <-closed)
}

func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	for _, transport := range transports() {
		t.Run(transport, func(t *testing.T) {
			w := newWorld(t)
			d, l := w.dial(w.agent, transport), w.lease()
			done := make(chan error, 24)
			for i := range cap(done) {
				r := d.run(w.start(l, "print", fmt.Sprintf("--size=%d", 1000*i)))
				go func() {
					for r.exit == nil {
						if err := r.next(); err != nil {
							done <- err
							return
						}
					}
					if len(r.stdout) != 1000*i {
						done <- fmt.Errorf("%d bytes of %d", len(r.stdout), 1000*i)
						return
					}
					done <- r.WriteFrame(&protocol.ExitAck{})
				}()
			}
			for range cap(done) {
				require.NoError(t, <-done)
			}
			eventually(t, func() bool { return len(w.node.Status().Operations) == 0 && w.node.budget.Used() == 0 })
		})
	}
}

// TestCancelAroundTheStart: whenever it comes, nothing is left, and what the
// caller is told agrees with the ledger.
func TestCancelAroundTheStart(t *testing.T) {
	t.Parallel()
	for _, transport := range transports() {
		t.Run(transport, func(t *testing.T) {
			w := newWorld(t)
			d, l := w.dial(w.agent, transport), w.lease()
			for i := range 60 {
				s := w.start(l, "sleep")
				r := d.run(s)
				pause := time.NewTimer(time.Duration(i%20) * 200 * time.Microsecond)
				<-pause.C
				w.cancel(d, s, l)
				r.until(func() bool { return r.exit != nil || r.refused != nil })
				if r.refused != nil {
					require.Equal(t, protocol.CodeCancelled.String(), r.refused.Code.String())
					_ = r.stream.Close()
					continue
				}
				require.Equal(t, protocol.CodeCancelled, r.exit.Code)
				require.NoError(t, r.WriteFrame(&protocol.ExitAck{}))
				_ = r.stream.Close()
			}
			eventually(t, func() bool { return w.host.Running.Load() == 0 && len(w.node.Status().Operations) == 0 })
		})
	}
}
