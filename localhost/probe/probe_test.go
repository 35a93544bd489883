package probe

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lendcli/lend/localhost/route"
	"github.com/lendcli/lend/protocol/argv"
	"github.com/lendcli/lend/protocol/name"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const canary = "canary-of-an-output"

// script is what one fake run does.
type script struct {
	err    error         // of the start
	out    int           // bytes on standard error, beside a canary on standard output
	exit   route.Exit    // after takes
	takes  time.Duration // negative: until it is ended
	closed error         // of Close
}

// host starts fakes and counts them.
type host struct {
	mu       sync.Mutex
	next     func(route.StartRequest) script
	requests []route.StartRequest
	live     atomic.Int64
	most     atomic.Int64
}

func (h *host) Start(_ context.Context, r route.StartRequest) (route.Process, error) {
	h.mu.Lock()
	h.requests = append(h.requests, r)
	s := script{}
	if h.next != nil {
		s = h.next(r)
	}
	h.mu.Unlock()
	if s.err != nil {
		return nil, s.err
	}
	h.most.Store(max(h.most.Load(), h.live.Add(1)))
	return &fake{script: s, host: h, killed: make(chan struct{}), stderr: newPipe(s.out)}, nil
}

func (h *host) starts() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.requests)
}

// pipe has so many bytes and then hangs until it is closed.
type pipe struct {
	mu   sync.Mutex
	left int
	done chan struct{}
	once sync.Once
}

func newPipe(left int) *pipe { return &pipe{left: left, done: make(chan struct{})} }

func (p *pipe) Read(b []byte) (int, error) {
	p.mu.Lock()
	n := min(len(b), p.left)
	p.left -= n
	p.mu.Unlock()
	if n > 0 {
		return n, nil
	}
	<-p.done
	return 0, io.EOF
}

func (p *pipe) Close() error {
	p.once.Do(func() { close(p.done) })
	return nil
}

type fake struct {
	script
	host   *host
	killed chan struct{}
	stderr *pipe
	once   sync.Once
}

func (f *fake) Stdin() io.WriteCloser { return nil }
func (f *fake) Stdout() io.ReadCloser { return io.NopCloser(strings.NewReader(canary)) }
func (f *fake) Stderr() io.ReadCloser { return f.stderr }

func (f *fake) Wait(ctx context.Context) (route.Exit, error) {
	var end <-chan time.Time
	if f.takes >= 0 {
		t := time.NewTimer(f.takes)
		defer t.Stop()
		end = t.C
	}
	select {
	case <-end:
		if f.out <= MaxOutput {
			_ = f.stderr.Close() // its end is the end of its output
		}
		return f.exit, nil
	case <-f.killed:
		return route.Exit{Signal: "SIGKILL"}, nil
	case <-ctx.Done():
		return route.Exit{}, context.Cause(ctx)
	}
}

func (f *fake) Terminate() error { return f.Close() }
func (f *fake) Kill() error      { return f.Close() }

func (f *fake) Close() error {
	f.once.Do(func() {
		close(f.killed)
		_ = f.stderr.Close()
		f.host.live.Add(-1)
	})
	return f.closed
}

type launcher struct{}

func (launcher) Prepare(context.Context, route.StartCLIRequest) (route.Starter, error) {
	return nil, route.ErrUnavailable
}
func (launcher) Close() error { return nil }

func descriptor(t *testing.T, key string, p *route.Probe) route.Descriptor {
	t.Helper()
	k, err := name.ParseConnectorKey(key)
	require.NoError(t, err)
	v, err := name.ParseVersion("1.0.0")
	require.NoError(t, err)
	c, err := name.ParseConnectionID("default")
	require.NoError(t, err)
	return route.Descriptor{
		Identity: route.Identity{
			Connector: k, Version: v, Connection: c,
			ReleaseDigest: strings.Repeat("a", 64), ContractHash: "sha256:" + strings.Repeat("c", 64),
		},
		Contract: argv.Contract{Command: "fake", Arguments: []string{"--plain"}},
		Probe:    p,
	}
}

func probing(args ...string) *route.Probe {
	return &route.Probe{Arguments: args, Timeout: 5 * time.Second}
}

func publish(t *testing.T, r *route.Registry, d route.Descriptor) route.Descriptor {
	t.Helper()
	d, err := r.Commit(t.Context(), d, launcher{})
	require.NoError(t, err)
	return d
}

// TestReadinessProbeTimeoutAndExitAffectReadinessOnly: each end of a probe has its
// state and reason, and whatever it was, the route stays what it is.
func TestReadinessProbeTimeoutAndExitAffectReadinessOnly(t *testing.T) {
	t.Parallel()
	for title, c := range map[string]struct {
		script script
		state  State
		reason Reason
		status int
		took   time.Duration
	}{
		"ready":            {script{takes: time.Second}, Ready, "", 0, time.Second},
		"ready-with-words": {script{out: MaxOutput, takes: time.Second}, Ready, "", 0, time.Second},
		"exit":             {script{exit: route.Exit{Code: 3}}, NotReady, ExitStatus, 3, 0},
		"signal":           {script{exit: route.Exit{Signal: "SIGSEGV"}}, NotReady, Signal, 0, 0},
		"timeout":          {script{takes: -1}, NotReady, Timeout, 0, 5 * time.Second},
		"late":             {script{takes: time.Minute, exit: route.Exit{Code: 3}}, NotReady, Timeout, 0, 5 * time.Second},
		"output":           {script{out: MaxOutput + 1, takes: -1}, NotReady, Output, 0, 0},
		"output-then-exit": {script{out: MaxOutput + 1}, NotReady, Output, 0, 0},
		"retired":          {script{exit: route.Exit{Signal: "SIGTERM", Retired: true}}, Unknown, Interrupted, 0, 0},
		"not-started":      {script{err: route.ErrUnavailable}, Unknown, NotStarted, 0, 0},
		"route-changed":    {script{err: route.ErrIdentityMismatch}, Unknown, Interrupted, 0, 0},
		"not-closed":       {script{closed: errors.New("it lives")}, Ready, "", 0, 0},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := &host{next: func(route.StartRequest) script { return c.script }}
				r := route.NewRegistry()
				d := publish(t, r, descriptor(t, "fx", probing("auth", "status")))
				at, routes := r.Snapshot()
				var log strings.Builder
				p := New(Config{Routes: r, Starter: h, Log: zerolog.New(&log)})
				<-p.Changed(0)
				got := p.Of(d)
				p.Close()
				require.Equal(t, Readiness{
					Identity: d.Identity, State: c.state, Reason: c.reason, Status: c.status, At: got.At, Took: c.took,
				}, got)
				require.False(t, got.At.IsZero())
				require.Equal(t, 1, h.starts())
				require.Equal(t, route.StartRequest{
					Identity: d.Identity, Call: argv.Call{Arguments: []string{"--plain", "auth", "status"}},
				}, h.requests[0], "no input, no variable, no workspace")
				require.Zero(t, h.live.Load(), "nothing is left")
				now, after := r.Snapshot()
				require.Equal(t, at, now)
				require.Equal(t, routes, after)
				require.Equal(t, 1, strings.Count(log.String(), "readiness probed"))
				require.NotContains(t, log.String(), canary)
				require.NotContains(t, log.String(), "auth")
				require.NoError(t, r.Close(t.Context()))
			})
		})
	}
}

func TestWithoutAProbeNothingRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &host{}
		r := route.NewRegistry()
		d := publish(t, r, descriptor(t, "fx", nil))
		p := New(Config{Routes: r, Starter: h})
		time.Sleep(24 * time.Hour) // of the fake clock
		require.Zero(t, h.starts())
		_, all := p.All()
		require.Equal(t, []Readiness{{Identity: d.Identity, State: Unknown, Reason: NoProbe}}, all)
		p.Close()
		p.Close()
		require.NoError(t, r.Close(t.Context()))
	})
}

// TestProbesOneAtATimeAndAgain: two of ten seconds' worth never overlap, and each
// comes again about every five minutes, not together with the others.
func TestProbesOneAtATimeAndAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := map[string][]time.Time{}
		h := &host{next: func(q route.StartRequest) script {
			key := q.Identity.Connector.String()
			began[key] = append(began[key], time.Now())
			return script{takes: 3 * time.Second}
		}}
		r := route.NewRegistry()
		for _, key := range []string{"a", "b", "c", "d"} {
			publish(t, r, descriptor(t, key, probing("x")))
		}
		p := New(Config{Routes: r, Starter: h})
		first := time.Now()
		time.Sleep(24 * time.Hour) // of the fake clock
		p.Close()
		require.EqualValues(t, 1, h.most.Load())
		for key, all := range began {
			require.Less(t, all[0].Sub(first), 12*time.Second, "soon after its publication")
			require.InDelta(t, 24*12, len(all), 30, key)
			for i := range all[1:] {
				gap := all[i+1].Sub(all[i])
				require.GreaterOrEqual(t, gap, 4*time.Minute)
				require.Less(t, gap, 6*time.Minute+15*time.Second, "its own time, and that of the others")
			}
		}
		require.NoError(t, r.Close(t.Context()))
	})
}

func TestSpread(t *testing.T) {
	t.Parallel()
	seen := map[time.Duration]bool{}
	for range 1000 {
		d := spread(5 * time.Minute)
		require.GreaterOrEqual(t, d, 4*time.Minute)
		require.Less(t, d, 6*time.Minute)
		seen[d] = true
	}
	require.Greater(t, len(seen), 900)
	require.EqualValues(t, 1, spread(1))
}

// TestPublishedAndRetiredWhileItProbes: a new route is probed at once, what is gone is
// forgotten, and who waits is told of each finding that says something new.
func TestPublishedAndRetiredWhileItProbes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		code := 0
		h := &host{next: func(route.StartRequest) script { return script{takes: time.Second, exit: route.Exit{Code: code}} }}
		r := route.NewRegistry()
		p := New(Config{Routes: r, Starter: h, Every: time.Minute})
		synctest.Wait()
		require.Zero(t, h.starts())

		old := publish(t, r, descriptor(t, "fx", probing("x")))
		require.Equal(t, Readiness{Identity: old.Identity, State: Unknown, Reason: Pending}, p.Of(old))
		<-p.Changed(0)
		seen, all := p.All()
		require.Len(t, all, 1)
		require.Equal(t, Ready, all[0].State)

		next := publish(t, r, descriptor(t, "fx", probing("y")))
		require.Equal(t, Pending, p.Of(next).Reason, "what was known is of another generation")
		<-p.Changed(seen)
		seen, all = p.All()
		require.Equal(t, Ready, all[0].State)
		require.Equal(t, next.Identity, all[0].Identity)
		require.Equal(t, Pending, p.Of(old).Reason, "what is gone is forgotten")

		time.Sleep(5 * time.Minute) // of the fake clock: found again, nothing new
		again, _ := p.All()
		require.Equal(t, seen, again)
		require.Greater(t, h.starts(), 4)
		h.mu.Lock()
		code = 1
		h.mu.Unlock()
		<-p.Changed(seen)
		require.Equal(t, NotReady, p.Of(next).State)

		require.NoError(t, r.Remove(t.Context(), next.Identity))
		synctest.Wait()
		starts := h.starts()
		time.Sleep(time.Hour) // of the fake clock
		require.Equal(t, starts, h.starts())
		require.Empty(t, p.known)
		require.Empty(t, p.due)
		p.Close()
		require.NoError(t, r.Close(t.Context()))
	})
}

// TestCloseEndsTheProbeThatRuns: at once, and it is not held against the route.
func TestCloseEndsTheProbeThatRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &host{next: func(route.StartRequest) script { return script{takes: -1} }}
		r := route.NewRegistry()
		d := publish(t, r, descriptor(t, "fx", probing("x")))
		p := New(Config{Routes: r, Starter: h})
		synctest.Wait()
		require.EqualValues(t, 1, h.live.Load())
		began := time.Now()
		p.Close()
		require.Equal(t, began, time.Now())
		require.Zero(t, h.live.Load())
		require.Equal(t, Unknown, p.Of(d).State)
		require.Equal(t, Interrupted, p.Of(d).Reason)
		require.NoError(t, r.Close(t.Context()))
	})
}

// TestOutputsThatStayOpen: what a probe leaves behind holds its outputs, and is not
// waited for longer than a moment.
func TestOutputsThatStayOpen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &host{next: func(route.StartRequest) script { return script{} }}
		d := descriptor(t, "fx", probing("x"))
		held := starterFunc(func(ctx context.Context, q route.StartRequest) (route.Process, error) {
			p, err := h.Start(ctx, q)
			return holding{p.(*fake)}, err
		})
		r, err := run(t.Context(), held, d)
		require.NoError(t, err)
		require.Equal(t, Ready, r.State)
		require.Equal(t, drainTime, r.Took)
	})
}

type starterFunc func(context.Context, route.StartRequest) (route.Process, error)

func (f starterFunc) Start(ctx context.Context, q route.StartRequest) (route.Process, error) {
	return f(ctx, q)
}

// holding exits without the end of its outputs.
type holding struct{ *fake }

func (h holding) Wait(context.Context) (route.Exit, error) { return route.Exit{}, nil }

func TestReadinessInWords(t *testing.T) {
	t.Parallel()
	require.Equal(t, "ready", Readiness{State: Ready}.String())
	require.Equal(t, "not ready: its probe exited with status 3", Readiness{State: NotReady, Reason: ExitStatus, Status: 3}.String())
	seen := map[string]bool{}
	for _, r := range []Reason{"", ExitStatus, Signal, Timeout, Output, NoProbe, Pending, NotStarted, Interrupted} {
		text := Readiness{State: Unknown, Reason: r}.String()
		require.Regexp(t, "^unknown: [a-z]", text)
		require.False(t, seen[text], "each in words of its own")
		seen[text] = true
	}
}
