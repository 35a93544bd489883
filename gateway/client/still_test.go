package client

import (
	"bytes"
	"context"
	"io"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/protocol"
)

// ours returns the stacks of the goroutines that a client has for its operations, without
// that of the caller and those that only wait for the gateway to close.
func ours() (stacks []string) {
	b := make([]byte, 1<<22)
	for stack := range strings.SplitSeq(string(b[:runtime.Stack(b, true)]), "\n\n") {
		_, created, _ := strings.Cut(stack, "created by ")
		maker, _, _ := strings.Cut(created, " in goroutine")
		client := strings.Contains(stack, "/gateway/client.(*operation)") || strings.Contains(stack, "/client/internal/")
		if client && !strings.Contains(maker, "testing.") && !strings.Contains(stack, ".acknowledge.") {
			stacks = append(stacks, stack)
		}
	}
	return stacks
}

// An operation that has neither input nor output runs in its caller's goroutine alone; a
// Start adds one, output another one, and input two: who reads and who sends it.
func TestGoroutinesOfAnOperation(t *testing.T) {
	f := newFixture(overTCP)
	c := f.dial(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	script := func(frames ...protocol.Frame) (running, goOn chan struct{}) {
		running, goOn = make(chan struct{}), make(chan struct{})
		f.then(func(v *served) {
			if !v.send(acceptedFrame()) || !v.send(frames...) {
				return
			}
			close(running)
			<-goOn
			v.send(&protocol.Exit{Stdout: uint64(len(frames))})
			v.acked()
		})
		return running, goOn
	}
	settle := func(n int) {
		t.Helper()
		var got []string
		for range 500 {
			if got = ours(); len(got) == n {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		require.Len(t, got, n, "%s", strings.Join(got, "\n\n"))
	}
	settle(0)

	running, goOn := script()
	var seen []string
	looked := make(chan struct{})
	go func() {
		defer close(looked)
		<-running
		time.Sleep(50 * time.Millisecond) // what would be started is there
		seen = ours()
		close(goOn)
	}()
	require.NoError(t, c.Command(ctx, "github", "issue.list").Run())
	<-looked
	require.Empty(t, seen, "%s", strings.Join(seen, "\n\n"))
	settle(0)

	for _, tc := range []struct {
		input  bool
		frames []protocol.Frame
		want   int
	}{
		{false, nil, 1},
		{false, []protocol.Frame{stdout(0, "x")}, 2},
		{true, nil, 3},
	} {
		running, goOn := script(tc.frames...)
		cmd := c.Command(ctx, "github", "issue.list")
		if tc.input {
			in, err := cmd.StdinPipe()
			require.NoError(t, err)
			go func() { _, _ = io.WriteString(in, "some") }()
		}
		require.NoError(t, cmd.Start())
		<-running
		settle(tc.want)
		close(goOn)
		require.NoError(t, cmd.Wait())
		settle(0)
	}
}

// Output that comes late, and only once, is there, whatever came of nothing before.
func TestALateFirstOutput(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) { //nolint:thelper // the test itself
		c := f.dial(t)
		for range 10 {
			f.then(func(v *served) {
				v.send(acceptedFrame())
				time.Sleep(20 * time.Millisecond)
				v.send(stdout(0, "late"), &protocol.Exit{Stdout: 4})
				v.acked()
			})
			out, err := list(c).Output()
			require.NoError(t, err)
			require.Equal(t, "late", string(out))
		}
	})
}

// At whatever moment the context is done, before the link, the answer, the output, the end
// or after it, with input or without: Run returns, and nothing of it is left.
func TestCancelAtAnyMoment(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) { //nolint:thelper // the test itself
		f.config.Wait = time.Second
		c := f.dial(t)
		var mu sync.Mutex // guards stop
		stop := make(chan struct{})
		f.onControl(func(protocol.ControlRequest) protocol.ControlReply {
			mu.Lock()
			defer mu.Unlock()
			select {
			case <-stop:
			default:
				close(stop)
			}
			return &protocol.CancelReply{State: protocol.OperationRunning}
		})
		for i := range 60 {
			mu.Lock()
			stopped := make(chan struct{})
			stop = stopped
			mu.Unlock()
			f.mu.Lock()
			f.script = nil // of one that was not asked
			f.mu.Unlock()
			f.then(func(v *served) {
				v.send(acceptedFrame(), stdout(0, "x"))
				exit := &protocol.Exit{Stdout: 1}
				select {
				case <-stopped:
					exit.Code = protocol.CodeCancelled
				case <-time.After(time.Duration(i%10) * 200 * time.Microsecond):
				}
				v.send(exit)
				v.acked()
			})
			ctx, cancel := context.WithCancel(context.Background())
			timer := time.AfterFunc(time.Duration(i)*50*time.Microsecond, cancel)
			cmd := c.Command(ctx, "github", "issue.list")
			cmd.CancelTimeout = 20 * time.Second
			switch i % 3 {
			case 1:
				cmd.Stdin = struct{ io.Reader }{bytes.NewReader(make([]byte, 100000))}
			case 2:
				cmd.Stdin = bytes.NewReader(make([]byte, 100000))
			}
			began := time.Now()
			err := cmd.Run()
			require.Less(t, time.Since(began), 15*time.Second)
			status := ExitStatus(err)
			require.Contains(t, []int{0, 130}, status, "%v", err)
			timer.Stop()
			cancel()
		}
	})
}

// A context that is done after the end was told does not make the client ask anything.
func TestACancelAfterTheEndIsNotSent(t *testing.T) {
	f := newFixture(overTCP)
	c := f.dial(t)
	for range 50 {
		f.then(exits(stdout(0, "all"), &protocol.Exit{Stdout: 3}))
		ctx, cancel := context.WithCancel(t.Context())
		cmd := c.Command(ctx, "github", "issue.list")
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		all, err := io.ReadAll(out)
		cancel() // before Wait
		require.NoError(t, err)
		require.Equal(t, "all", string(all))
		require.NoError(t, cmd.Wait())
	}
	require.Empty(t, f.questions())
}
