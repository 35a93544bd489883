package hostile

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/protocol"
	"github.com/lendcli/lend/protocol/name"
)

func (g *target) key(s *protocol.Start) protocol.OperationKey {
	return protocol.OperationKey{Issuer: g.issuer.id, Invocation: must(name.ParseInvocationID("task")), Operation: s.Operation}
}

// control sends one request.
func (d *dialer) control(ctx context.Context, q protocol.ControlRequest) (protocol.ControlReply, error) {
	s, err := d.stream(ctx, protocol.ControlID)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	if err := protocol.WriteControlRequest(s, q); err != nil {
		return nil, err
	}
	return protocol.ReadControlReply(s)
}

// kill ends the gateway as a power cut would, and starts it again.
func (g *target) kill() {
	g.t.Helper()
	require.NoError(g.t, g.cmd.Process.Kill())
	_ = g.cmd.Wait()
	g.hangUp()
	g.start()
}

// overEach runs a test over each transport.
func overEach(t *testing.T, f func(t *testing.T, transport string)) {
	t.Helper()
	t.Parallel()
	for _, transport := range []string{"tcp", "quic"} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			f(t, transport)
		})
	}
}

// TestOneStartPerOperation has callers on two transports start, attach to, cancel
// and ask for the same operations at the same time, while the policy is read again
// and in the end the gateway is killed. However it comes out, an operation has one
// start at most, none after a cancel that said so, and none in the next gateway.
func TestOneStartPerOperation(t *testing.T) {
	t.Parallel()
	most := 120
	if long() {
		most = 3000
	}
	g := attack(t, ", starts_per_minute: 60000", 1)
	who := g.hostile[0]
	l := g.lease(who)
	links := []*dialer{g.mustDial(who, "tcp"), g.mustDial(who, "quic")}
	starts, never, ended := make([]*protocol.Start, most), make([]bool, most), make([]bool, most)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var mu sync.Mutex // guards never and ended
	one := func(i int) {
		s := start(l, "print", fmt.Sprintf("--size=%d", i+1))
		starts[i] = s
		var all sync.WaitGroup
		for k := range 4 {
			all.Go(func() {
				r, err := links[k%2].run(ctx, s)
				if err == nil && r.exit != nil && r.exit.Code == protocol.CodeOK {
					mu.Lock()
					defer mu.Unlock()
					ended[i] = true
				}
			})
		}
		if i%3 > 0 {
			all.Go(func() {
				time.Sleep(time.Duration(rand.IntN(2000)) * time.Microsecond)
				q := &protocol.CancelRequest{OperationKey: g.key(s)}
				if i%3 > 1 {
					q.Lease = s.Lease
				}
				reply, err := links[i%2].control(ctx, q)
				if c, ok := reply.(*protocol.CancelReply); err == nil && ok && c.State == protocol.OperationNotStarted {
					mu.Lock()
					defer mu.Unlock()
					never[i] = true
				}
			})
		}
		all.Go(func() {
			_, _ = links[(i+1)%2].run(ctx, &protocol.Attach{Issuer: g.issuer.id, Invocation: g.key(s).Invocation, Operation: s.Operation})
			_, _ = links[i%2].control(ctx, &protocol.StatusRequest{OperationKey: g.key(s)})
		})
		all.Wait()
	}
	var all sync.WaitGroup
	next := make(chan int)
	for range 4 {
		all.Go(func() {
			for i := range next {
				one(i)
			}
		})
	}
	for i := range most {
		if i%40 == 0 {
			g.ask("reload")
		}
		next <- i
	}
	close(next)
	all.Wait()
	first := g.stats().Printed
	g.kill()
	again := g.mustDial(who, "tcp")
	for _, s := range starts {
		_, _ = again.run(ctx, s)
	}
	second := g.stats().Printed
	runs, cancelled := 0, 0
	for i := range most {
		n := first[i+1]
		require.LessOrEqual(t, n, 1, "operation %d", i)
		require.False(t, n > 0 && never[i], "operation %d: it was said that nothing was started", i)
		require.False(t, n > 0 && second[i+1] > 0, "operation %d ran again after a crash", i)
		require.LessOrEqual(t, second[i+1], 1)
		require.False(t, ended[i] && n == 0, "an end was told of what never ran")
		if n > 0 {
			runs++
		}
		if never[i] {
			cancelled++
		}
	}
	t.Logf("%d operations: %d ran, %d were cancelled before their start", most, runs, cancelled)
	require.Positive(t, runs)
}

// TestSlotsComeBack: whatever thousands of starts came to, a peer may run as much
// afterwards as before, and not one more.
func TestSlotsComeBack(t *testing.T) { overEach(t, slotsComeBack) }

func slotsComeBack(t *testing.T, transport string) { //nolint:thelper // the test itself
	most := 300
	if long() {
		most = 10_000
	}
	g := attack(t, ", starts_per_minute: 60000, operations_per_peer: 6", 1)
	who := g.hostile[0]
	d, l := g.mustDial(who, transport), g.lease(who)
	few := g.lease(who, func(l *lease.Lease) { l.MaxOperations, l.MaxConcurrent = 1, 1 })
	ctx, cancel := context.WithTimeout(t.Context(), 5*patience)
	defer cancel()
	var all sync.WaitGroup
	next := make(chan int)
	for range 12 {
		all.Go(func() {
			for i := range next {
				switch i % 6 {
				case 0:
					_, _ = d.run(ctx, start(l, "fail"))
				case 1:
					_, _ = d.run(ctx, start(few, "print", "--size=1"))
				case 2:
					short, stop := context.WithTimeout(ctx, time.Duration(rand.IntN(3))*time.Millisecond)
					_, _ = d.run(short, start(l, "print", "--size=10"))
					stop()
				case 3:
					s := start(l, "sleep")
					over, stop := context.WithCancel(ctx)
					all.Go(func() {
						for over.Err() == nil { // without the lease nothing is remembered
							_, _ = d.control(ctx, &protocol.CancelRequest{OperationKey: g.key(s)})
						}
					})
					_, _ = d.run(ctx, s)
					stop()
				case 4:
					_, _ = d.run(ctx, start(l, "print", "--size=x"))
				case 5:
					s := start(l, "print", "--size=100")
					s.Connector = must(name.ParseConnectorKey("other"))
					_, _ = d.run(ctx, s)
				}
			}
		})
	}
	for i := range most {
		next <- i
	}
	close(next)
	all.Wait()
	require.Eventually(t, func() bool { s := g.stats(); return s.Operations == 0 && s.Running == 0 }, patience, 50*time.Millisecond)
	require.Greater(t, g.stats().Starts, int64(most/10), "most were refused for something else")
	for i := range 7 {
		s, err := d.stream(ctx, protocol.RunID)
		require.NoError(t, err)
		defer func() { _ = s.Reset() }()
		require.NoError(t, protocol.NewWriter(s).WriteFrame(start(l, "sleep")))
		f, err := protocol.NewReader(s, protocol.Caller).Read()
		require.NoError(t, err)
		if i < 6 {
			require.IsType(t, &protocol.Accepted{}, f, "slot %d", i)
			continue
		}
		require.Equal(t, protocol.CodeBusy, f.(*protocol.Refused).Code, "one more than there are")
	}
}

// TestShutdownUnderAttack: whoever holds streams, sends or reads nothing, the
// gateway ends within its budget. That it does is what stop checks.
func TestShutdownUnderAttack(t *testing.T) {
	t.Parallel()
	for _, transport := range []string{"tcp", "quic"} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			what := []string{"attaches to one operation", "starts beyond the rate"}
			if long() {
				what = append(what, "input byte by byte") // takes the whole budget
			}
			g := attack(t, "", len(what))
			ctx, cancel := context.WithCancel(t.Context())
			var all sync.WaitGroup
			for i, what := range what {
				all.Go(func() { assaults()[what](ctx, g, g.hostile[i], transport) })
			}
			require.Eventually(t, func() bool { return g.stats().Starts > 10 }, patience, 10*time.Millisecond)
			begun := time.Now()
			g.stop()
			require.Less(t, time.Since(begun), 20*time.Second)
			cancel()
			all.Wait()
			g.start()
		})
	}
}

// TestNothingForeignIsWritten: what a peer chooses reaches the log and the ledger
// only as names, quoted; arguments and input never.
func TestNothingForeignIsWritten(t *testing.T) { overEach(t, nothingForeignIsWritten) }

func nothingForeignIsWritten(t *testing.T, transport string) { //nolint:thelper // the test itself
	g := attack(t, "", 1)
	who, secret := g.hostile[0], "s3cr3t-value"
	d := g.mustDial(who, transport)
	evil := []string{secret, "--size=" + secret, "--" + secret, "\x1b[31m" + secret, secret + "\n{\"level\":\"info\"}", "--size=1\x00" + secret, "\u202e" + secret}
	l := g.lease(who, func(l *lease.Lease) { l.Purpose = "a purpose <script>" })
	for _, a := range evil {
		_, _ = d.run(t.Context(), start(l, "print", a))
		_, _ = d.run(t.Context(), start(l, "sleep", a))
	}
	s := start(l, "cat")
	st, err := d.stream(t.Context(), protocol.RunID)
	require.NoError(t, err)
	w := protocol.NewWriter(st)
	require.NoError(t, w.WriteFrame(s))
	require.NoError(t, w.WriteFrame(&protocol.Data{Payload: []byte(secret)}))
	require.NoError(t, w.WriteFrame(&protocol.StdinEnd{Total: uint64(len(secret))}))
	out, _ := io.ReadAll(io.LimitReader(st, 60))
	require.NotEmpty(t, out)
	require.NoError(t, st.Reset())
	for _, raw := range []string{secret, "\x1b]0;" + secret + "\a", "\r\nGET / HTTP/1.1\r\n" + secret} {
		st, err := d.stream(t.Context(), protocol.RunID)
		require.NoError(t, err)
		_, _ = st.Write(append([]byte{byte(len(raw))}, raw...))
		_, _ = io.ReadAll(st)
	}
	g.stats()
	g.stop()
	defer g.start() // for the cleanup
	found := 0
	require.NoError(t, filepath.WalkDir(g.dir, func(p string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() || e.Name() == "reserve" {
			return err
		}
		b, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		found++
		if i := bytes.Index(b, []byte(secret)); i >= 0 {
			require.Fail(t, "holds what a peer sent", "%s: %q", p, b[max(0, i-200):min(len(b), i+50)])
		}
		if e.Name() == "log" {
			require.NotContains(t, string(b), "\x1b")
			for line := range strings.Lines(string(b)) {
				require.True(t, strings.HasPrefix(line, `{"level":`), "a line that a peer made: %q", line)
			}
		}
		return nil
	}))
	require.Greater(t, found, 4)
}
