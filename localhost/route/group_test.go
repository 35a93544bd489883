package route

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Retirement during a start: the launcher has a process at hand when the fence
// comes, and it must not live.
func TestFenceClosesALateProcess(t *testing.T) {
	t.Parallel()
	r := NewRegistry()
	l := &fakeLauncher{gate: make(chan struct{}), seen: make(chan context.Context, 1)}
	d := commit(t, r, candidate(t, "github", "1.0.0", "default", "a"), l)
	started := make(chan error, 1)
	go func() {
		_, err := r.StartCLI(t.Context(), request(d.Identity))
		started <- err
	}()
	launching := <-l.seen
	removed := make(chan error, 1)
	go func() { removed <- r.Remove(t.Context(), d.Identity) }()
	<-launching.Done()
	require.ErrorIs(t, context.Cause(launching), ErrUnavailable, "the fence cancels pending starts")
	require.Zero(t, l.starts.Load())
	close(l.gate)
	require.ErrorIs(t, <-started, ErrUnavailable)
	require.NoError(t, <-removed)
	require.EqualValues(t, 1, l.starts.Load())
	require.Zero(t, l.live.Load())
}

func TestLateProcessThatCannotBeClosedIsKept(t *testing.T) {
	t.Parallel()
	r := NewRegistry()
	broken := make(chan error, 3)
	l := &fakeLauncher{gate: make(chan struct{}), seen: make(chan context.Context, 1), make: func(p *fakeProcess) {
		p.stubborn = true
		p.closeErr = func() error { return <-broken }
	}}
	d := commit(t, r, candidate(t, "github", "1.0.0", "default", "a"), l)
	ctx, cancel := context.WithCancel(t.Context())
	started := make(chan error, 1)
	go func() {
		_, err := r.StartCLI(ctx, request(d.Identity))
		started <- err
	}()
	<-l.seen
	cancel()
	require.ErrorIs(t, <-started, context.Canceled, "the caller does not wait for a slow start")
	broken <- errClose
	close(l.gate)
	broken <- nil
	require.NoError(t, r.Remove(t.Context(), d.Identity))
	require.Zero(t, l.live.Load())
	require.Empty(t, broken)
}

func TestCallerCancelsAStart(t *testing.T) {
	t.Parallel()
	r := NewRegistry()
	l := &fakeLauncher{gate: make(chan struct{}), seen: make(chan context.Context, 1)}
	d := commit(t, r, candidate(t, "github", "1.0.0", "default", "a"), l)
	gone := errors.New("gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	started := make(chan error, 1)
	go func() {
		_, err := r.StartCLI(ctx, request(d.Identity))
		started <- err
	}()
	launching := <-l.seen
	cancel(gone)
	require.ErrorIs(t, <-started, gone)
	<-launching.Done()
	close(l.gate)
	require.NoError(t, r.Close(t.Context()), "waits for the late process")
	require.EqualValues(t, 1, l.starts.Load())
	require.Zero(t, l.live.Load())

	_, err := r.StartCLI(ctx, request(d.Identity))
	require.Error(t, err)
}

func TestStartOutlivesItsContext(t *testing.T) {
	t.Parallel()
	r := NewRegistry()
	l := &fakeLauncher{seen: make(chan context.Context, 1)}
	d := commit(t, r, candidate(t, "github", "1.0.0", "default", "a"), l)
	ctx, cancel := context.WithCancel(t.Context())
	c, err := r.StartCLI(ctx, request(d.Identity))
	require.NoError(t, err)
	cancel()
	require.EqualValues(t, 1, l.live.Load(), "ctx has no effect once the process runs")
	require.NoError(t, c.Close())
}

func TestFailedStart(t *testing.T) {
	t.Parallel()
	r := NewRegistry()
	broken := errors.New("no such file")
	d := commit(t, r, candidate(t, "github", "1.0.0", "default", "a"), &fakeLauncher{fail: broken})
	_, err := r.StartCLI(t.Context(), request(d.Identity))
	require.ErrorIs(t, err, broken)
	require.NotErrorIs(t, err, ErrUnavailable, "only the launcher knows what its failure means")
	require.NoError(t, r.Close(t.Context()))
}

func TestConnection(t *testing.T) {
	t.Parallel()
	r := NewRegistry()
	l := &fakeLauncher{}
	d := commit(t, r, candidate(t, "github", "1.0.0", "default", "a"), l)
	c, err := r.StartCLI(t.Context(), request(d.Identity))
	require.NoError(t, err)
	require.Nil(t, c.Stdin())
	require.NotNil(t, c.Stdout())
	require.NotNil(t, c.Stderr())

	done, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = c.Wait(done)
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, c.Terminate())
	e, err := c.Wait(t.Context())
	require.NoError(t, err)
	require.Equal(t, Exit{Signal: "SIGTERM"}, e)

	require.NoError(t, r.Remove(t.Context(), d.Identity))
	e, err = c.Wait(t.Context())
	require.NoError(t, err)
	require.False(t, e.Retired, "it had ended before the route was retired")
	require.NoError(t, c.Kill())

	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { _ = c.Close() })
	}
	wg.Wait()
	require.EqualValues(t, 1, l.last.Load().closes.Load())
}

// A start that races the retirement of its route, a thousand times: whichever
// wins, no process lives once both are done.
func TestStartRacingRetirement(t *testing.T) {
	t.Parallel()
	r := NewRegistry()
	l := &fakeLauncher{}
	for i := range 1000 {
		d := commit(t, r, candidate(t, "github", "1.0.0", "default", "a"), l)
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				c, err := r.StartCLI(context.Background(), request(d.Identity))
				if err != nil && !errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrIdentityMismatch) {
					t.Errorf("start: %v", err)
				}
				if err == nil && i%2 == 0 {
					_ = c.Close()
				}
			})
		}
		wg.Go(func() {
			if i%3 == 0 {
				_, _ = r.Commit(context.Background(), candidate(t, "github", "1.0.0", "default", "b"), l)
			} else {
				_ = r.Remove(context.Background(), d.Identity)
			}
		})
		wg.Wait()
		require.Zero(t, l.live.Load(), "iteration %d", i)
	}
	require.NoError(t, r.Close(t.Context()))
	require.Zero(t, l.live.Load())
}
