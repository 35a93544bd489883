package route

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// begin starts in a goroutine, whose outcome the channel gets.
func begin(ctx context.Context, r *Registry, id Identity) <-chan outcome {
	done := make(chan outcome, 1)
	go func() {
		c, err := r.StartCLI(ctx, request(id))
		done <- outcome{c, err}
	}()
	return done
}

func TestFenceRefusesAStartThatIsBeingPrepared(t *testing.T) {
	t.Parallel()
	r := NewRegistry()
	l := &fakeLauncher{preparing: newStep()}
	d := commit(t, r, candidate(t, "github", "1.0.0", "default", "a"), l)
	started := begin(t.Context(), r, d.Identity)
	preparing := <-l.preparing.reached
	removed := make(chan error, 1)
	go func() { removed <- r.Remove(t.Context(), d.Identity) }()
	<-preparing.Done()
	require.ErrorIs(t, context.Cause(preparing), ErrUnavailable, "the fence cancels pending starts")
	close(l.preparing.pass)
	require.ErrorIs(t, (<-started).err, ErrUnavailable)
	require.NoError(t, <-removed)
	require.Zero(t, l.starts.Load(), "an error means that nothing ran")
}

// The transport has the start when the fence comes: the process ran, so it is
// returned, and it is retired.
func TestFenceRetiresAProcessThatComesLate(t *testing.T) {
	t.Parallel()
	r := NewRegistry()
	l := &fakeLauncher{starting: newStep()}
	d := commit(t, r, candidate(t, "github", "1.0.0", "default", "a"), l)
	started := begin(t.Context(), r, d.Identity)
	starting := <-l.starting.reached
	removed := make(chan error, 1)
	go func() { removed <- r.Remove(t.Context(), d.Identity) }()
	<-starting.Done()
	close(l.starting.pass)
	o := <-started
	require.NoError(t, o.err)
	require.NoError(t, <-removed)
	require.Zero(t, l.live.Load())
	e, err := o.connection.Wait(t.Context())
	require.NoError(t, err)
	require.Equal(t, Exit{Signal: "SIGTERM", Retired: true}, e)
	require.NoError(t, o.connection.Close())
	require.EqualValues(t, 1, l.last.Load().closes.Load())
}

func TestFenceCancelsAStartThatWaits(t *testing.T) {
	t.Parallel()
	r := NewRegistry()
	busy := errors.New("no supervisor in time")
	l := &fakeLauncher{starting: newStep(), failStart: busy}
	d := commit(t, r, candidate(t, "github", "1.0.0", "default", "a"), l)
	started := begin(t.Context(), r, d.Identity)
	<-l.starting.reached
	removed := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { removed <- r.Remove(ctx, d.Identity) }()
	cancel()
	require.ErrorIs(t, <-removed, context.Canceled, "still starting at the deadline")
	close(l.starting.pass)
	o := <-started
	require.ErrorIs(t, o.err, busy)
	require.ErrorIs(t, o.err, ErrUnavailable)
	require.NoError(t, r.Settle(t.Context()))
	require.EqualValues(t, 1, l.closed.Load())
}

func TestCallerGoesAway(t *testing.T) {
	t.Parallel()
	gone := errors.New("gone")

	t.Run("while-it-is-prepared", func(t *testing.T) {
		t.Parallel()
		r := NewRegistry()
		l := &fakeLauncher{preparing: newStep()}
		d := commit(t, r, candidate(t, "github", "1.0.0", "default", "a"), l)
		ctx, cancel := context.WithCancelCause(t.Context())
		started := begin(ctx, r, d.Identity)
		preparing := <-l.preparing.reached
		cancel(gone)
		require.ErrorIs(t, (<-started).err, gone, "at once")
		<-preparing.Done()
		close(l.preparing.pass)
		require.NoError(t, r.Close(t.Context()), "waits for the start to give up")
		require.Zero(t, l.starts.Load())
		_, err := r.StartCLI(ctx, request(d.Identity))
		require.Error(t, err)
	})

	t.Run("while-the-transport-has-it", func(t *testing.T) {
		t.Parallel()
		r := NewRegistry()
		l := &fakeLauncher{starting: newStep()}
		d := commit(t, r, candidate(t, "github", "1.0.0", "default", "a"), l)
		ctx, cancel := context.WithCancelCause(t.Context())
		started := begin(ctx, r, d.Identity)
		starting := <-l.starting.reached
		cancel(gone)
		<-starting.Done()
		require.ErrorIs(t, context.Cause(starting), gone)
		close(l.starting.pass)
		o := <-started
		require.NoError(t, o.err, "it ran, so the caller has it")
		require.NoError(t, o.connection.Close())
		require.Zero(t, l.live.Load())
	})

	t.Run("before-it-begins", func(t *testing.T) {
		t.Parallel()
		r := NewRegistry()
		l := &fakeLauncher{}
		d := commit(t, r, candidate(t, "github", "1.0.0", "default", "a"), l)
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(gone)
		_, err := r.StartCLI(ctx, request(d.Identity))
		require.ErrorIs(t, err, gone)
		require.Zero(t, l.starts.Load())
	})

	t.Run("once-it-runs", func(t *testing.T) {
		t.Parallel()
		r := NewRegistry()
		l := &fakeLauncher{}
		d := commit(t, r, candidate(t, "github", "1.0.0", "default", "a"), l)
		ctx, cancel := context.WithCancel(t.Context())
		c, err := r.StartCLI(ctx, request(d.Identity))
		require.NoError(t, err)
		cancel()
		require.EqualValues(t, 1, l.live.Load(), "ctx has no effect any more")
		require.NoError(t, c.Close())
	})
}

func TestFailedStart(t *testing.T) {
	t.Parallel()
	broken := errors.New("no such file")
	for _, l := range []*fakeLauncher{{fail: broken}, {failStart: broken}} {
		r := NewRegistry()
		d := commit(t, r, candidate(t, "github", "1.0.0", "default", "a"), l)
		_, err := r.StartCLI(t.Context(), request(d.Identity))
		require.ErrorIs(t, err, broken)
		require.NotErrorIs(t, err, ErrUnavailable, "only the launcher knows what its failure means")
		require.NoError(t, r.Close(t.Context()))
	}
}

// Execution connection: what the transport can do is kept, and it is released once.
func TestExecutionConnectionKeepsCapabilitiesAndReleasesOnce(t *testing.T) {
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
	errs := make([]error, 8)
	for i := range errs {
		wg.Go(func() { errs[i] = c.Close() })
	}
	wg.Wait()
	require.EqualValues(t, 1, l.last.Load().closes.Load())
	for _, err := range errs {
		require.NoError(t, err, "each has the error of the first")
	}
}

// A start that races the retirement of its route, a thousand times: whichever
// wins, no process lives once both are done, and as many ran as starts succeeded.
func TestStartRacingRetirement(t *testing.T) {
	t.Parallel()
	r := NewRegistry()
	l := &fakeLauncher{}
	var succeeded atomic.Int64
	for i := range 1000 {
		d := commit(t, r, candidate(t, "github", "1.0.0", "default", "a"), l)
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				c, err := r.StartCLI(context.Background(), request(d.Identity))
				if err != nil && !errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrIdentityMismatch) {
					t.Errorf("start: %v", err)
				}
				if err != nil {
					return
				}
				if succeeded.Add(1); i%2 == 0 {
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
	require.Equal(t, succeeded.Load(), l.starts.Load())
}
