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

// outcome is how a start ended.
type outcome struct {
	connection *CLIConnection
	err        error
}

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
		_, err = r.Prepare(ctx, request(d.Identity))
		require.ErrorIs(t, err, gone)
		require.Zero(t, l.prepared.Load())
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

// activity is that of the only route.
func activity(r *Registry) Activity {
	_, all := r.Activity()
	return all[0]
}

// ready prepares a start and waits until the launcher has answered.
func ready(t *testing.T, r *Registry, id Identity) *pending {
	t.Helper()
	p, err := r.prepare(t.Context(), request(id))
	require.NoError(t, err)
	<-p.ready
	return p
}

func TestPreparedStartsOnce(t *testing.T) {
	t.Parallel()
	r := NewRegistry()
	l := &fakeLauncher{}
	d := commit(t, r, candidate(t, "github", "1.0.0", "default", "a"), l)
	q := request(d.Identity)
	q.WorkingDirectory = "" // the launcher makes one
	p, err := r.prepare(t.Context(), q)
	require.NoError(t, err)
	<-p.ready
	require.Zero(t, l.starts.Load(), "nothing runs yet")
	require.Equal(t, 1, activity(r).Starting)
	c, err := p.Start(t.Context())
	require.NoError(t, err)
	p.Drop()
	require.EqualValues(t, 1, l.live.Load(), "it is started: Drop does nothing")
	_, err = p.Start(t.Context())
	require.ErrorIs(t, err, ErrUnavailable)
	require.EqualValues(t, 1, l.starts.Load())
	require.NoError(t, c.Close())
	require.NoError(t, r.Close(t.Context()))
	require.Zero(t, l.dropped.Load())
}

func TestPreparedIsDropped(t *testing.T) {
	t.Parallel()
	gone := errors.New("gone")
	for title, give := range map[string]struct {
		up   func(p *pending)
		want error
	}{
		"by-its-owner": {func(p *pending) { p.Drop() }, ErrUnavailable},
		"by-the-end-of-its-start": {func(p *pending) {
			ctx, cancel := context.WithCancelCause(context.Background())
			cancel(gone)
			_, err := p.Start(ctx)
			require.ErrorIs(t, err, gone)
		}, gone},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			r := NewRegistry()
			l := &fakeLauncher{}
			d := commit(t, r, candidate(t, "github", "1.0.0", "default", "a"), l)
			p := ready(t, r, d.Identity)
			give.up(p)
			give.up(p)
			require.EqualValues(t, 1, l.dropped.Load(), "at once, and once")
			require.Zero(t, activity(r).Starting)
			_, err := p.Start(t.Context())
			require.ErrorIs(t, err, give.want)

			// While the launcher has it: as soon as that answers.
			l.preparing = newStep()
			p, err = r.prepare(t.Context(), request(d.Identity))
			require.NoError(t, err)
			preparing := <-l.preparing.reached
			give.up(p)
			<-preparing.Done()
			close(l.preparing.pass)
			<-p.ready
			require.EqualValues(t, 2, l.dropped.Load())
			_, err = p.Start(t.Context())
			require.ErrorIs(t, err, give.want)
			require.Zero(t, l.starts.Load())
			require.NoError(t, r.Close(t.Context()))
		})
	}
}

// A route that is retired does not wait for the owner of what is prepared.
func TestFenceDropsWhatIsPrepared(t *testing.T) {
	t.Parallel()
	for title, retire := range map[string]func(r *Registry, id Identity){
		"remove": func(r *Registry, id Identity) { require.NoError(t, r.Remove(context.Background(), id)) },
		"drain":  func(r *Registry, id Identity) { require.True(t, r.Drain(id)) },
		"close":  func(r *Registry, _ Identity) { require.NoError(t, r.Close(context.Background())) },
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			r := NewRegistry()
			l := &fakeLauncher{}
			d := commit(t, r, candidate(t, "github", "1.0.0", "default", "a"), l)
			p := ready(t, r, d.Identity)
			retire(r, d.Identity)
			require.EqualValues(t, 1, l.dropped.Load())
			require.EqualValues(t, 1, l.closed.Load(), "nothing of the route is left")
			_, err := p.Start(t.Context())
			require.ErrorIs(t, err, ErrUnavailable)
			require.Zero(t, l.starts.Load())
			require.NoError(t, r.Close(t.Context()))
			_, err = r.Prepare(t.Context(), request(d.Identity))
			require.Error(t, err)
		})
	}
}

// A fence that has come refuses the start, even before what is prepared was dropped.
func TestFenceRefusesWhatIsPrepared(t *testing.T) {
	t.Parallel()
	r := NewRegistry()
	l := &fakeLauncher{}
	d := commit(t, r, candidate(t, "github", "1.0.0", "default", "a"), l)
	p := ready(t, r, d.Identity)
	p.group.fence()
	_, err := p.Start(t.Context())
	require.ErrorIs(t, err, ErrUnavailable)
	require.Zero(t, l.starts.Load())
	require.EqualValues(t, 1, l.dropped.Load())
	require.NoError(t, r.Close(t.Context()))
}

// From the fence on nothing is prepared, and what the launcher has is dropped, before
// anybody closes or starts.
func TestFenceDropsWhatIsBeingPrepared(t *testing.T) {
	t.Parallel()
	r := NewRegistry()
	l := &fakeLauncher{preparing: newStep()}
	d := commit(t, r, candidate(t, "github", "1.0.0", "default", "a"), l)
	p, err := r.prepare(t.Context(), request(d.Identity))
	require.NoError(t, err)
	<-l.preparing.reached
	p.group.fence()
	close(l.preparing.pass)
	<-p.ready
	require.EqualValues(t, 1, l.dropped.Load())
	require.Zero(t, activity(r).Starting)
	_, err = p.group.prepare(t.Context(), func(context.Context) (Starter, error) {
		t.Error("the launcher is asked")
		return nil, errFenced
	})
	require.ErrorIs(t, err, ErrUnavailable)
	require.NoError(t, r.Close(t.Context()))
}

// A start that panics is accounted for like every other.
func TestStarterPanics(t *testing.T) {
	t.Parallel()
	r := NewRegistry()
	l := &fakeLauncher{panics: true}
	d := commit(t, r, candidate(t, "github", "1.0.0", "default", "a"), l)
	require.Panics(t, func() { _, _ = r.StartCLI(context.Background(), request(d.Identity)) })
	require.Zero(t, activity(r).Starting)
	require.NoError(t, r.Close(t.Context()))
}

func TestCloseThatPanicsHasNotClosed(t *testing.T) {
	t.Parallel()
	r := NewRegistry()
	l := &fakeLauncher{make: func(p *fakeProcess) {
		p.closeErr = func() error {
			if p.closes.Load() == 1 {
				panic("close")
			}
			return nil
		}
	}}
	d := commit(t, r, candidate(t, "github", "1.0.0", "default", "a"), l)
	c, err := r.StartCLI(t.Context(), request(d.Identity))
	require.NoError(t, err)
	require.Panics(t, func() { _ = c.Close() })
	require.Error(t, c.Close())
	require.Equal(t, 1, activity(r).Running, "the route keeps it")
	require.NoError(t, r.Close(t.Context()))
	require.Zero(t, l.live.Load())
}
