package route

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDrain: a route that is drained starts nothing and ends nothing.
func TestDrain(t *testing.T) {
	t.Parallel()
	r, l := NewRegistry(), &fakeLauncher{}
	d := commit(t, r, candidate(t, "github", "1.0.0", "default", "a"), l)
	c, err := r.StartCLI(t.Context(), request(d.Identity))
	require.NoError(t, err)

	require.False(t, r.Drain(withGeneration(d.Identity)), "another identity")
	require.True(t, r.Drain(d.Identity))
	require.False(t, r.Drain(d.Identity), "it is no longer current")
	_, err = r.Resolve(Query{Connector: d.Identity.Connector, Version: d.Identity.Version})
	require.ErrorIs(t, err, ErrNotFound)
	_, err = r.StartCLI(t.Context(), request(d.Identity))
	require.Error(t, err)
	require.Equal(t, []Identity{d.Identity}, r.Draining())
	_, all := r.Activity()
	require.Equal(t, []Activity{{Identity: d.Identity, Running: 1, Retiring: true, Draining: true}}, all)

	require.NoError(t, r.Settle(t.Context()))
	require.EqualValues(t, 1, l.live.Load(), "settling is for routes that are closed")
	require.Zero(t, l.last.Load().terms.Load())
	require.Zero(t, l.closed.Load())
	again := commit(t, r, candidate(t, "github", "1.0.0", "default", "a"), &fakeLauncher{})
	require.NotEqual(t, d.Identity, again.Identity, "the place is free")

	l.last.Load().end(Exit{Code: 7})
	e, err := c.Wait(t.Context())
	require.NoError(t, err)
	require.Equal(t, 7, e.Code)
	require.False(t, e.Retired)
	require.NoError(t, c.Close())
	require.EqualValues(t, 1, l.closed.Load(), "the release is let go with the last process")
	require.Empty(t, r.Draining())
	require.NoError(t, r.Close(t.Context()))
	require.EqualValues(t, 1, l.closed.Load())
}

func TestDrainOfAnIdleRoute(t *testing.T) {
	t.Parallel()
	r, l := NewRegistry(), &fakeLauncher{}
	d := commit(t, r, candidate(t, "github", "1.0.0", "default", "a"), l)
	require.True(t, r.Drain(d.Identity))
	require.EqualValues(t, 1, l.closed.Load())
	require.Empty(t, r.Draining())
	require.NoError(t, r.Close(t.Context()))
}

// TestDrainThatIsHurried: whoever removes the route, or closes all, does not wait.
func TestDrainThatIsHurried(t *testing.T) {
	t.Parallel()
	for n, end := range map[string]func(*Registry, Identity) error{
		"remove": func(r *Registry, id Identity) error { return r.Remove(t.Context(), id) },
		"close":  func(r *Registry, _ Identity) error { return r.Close(t.Context()) },
	} {
		r, l := NewRegistry(), &fakeLauncher{}
		d := commit(t, r, candidate(t, "github", "1.0.0", "default", "a"), l)
		c, err := r.StartCLI(t.Context(), request(d.Identity))
		require.NoError(t, err, n)
		require.True(t, r.Drain(d.Identity), n)
		require.NoError(t, end(r, d.Identity), n)
		require.Zero(t, l.live.Load(), n)
		require.EqualValues(t, 1, l.closed.Load(), n)
		require.Empty(t, r.Draining(), n)
		require.NoError(t, c.Close(), n)
		require.NoError(t, r.Close(t.Context()), n)
	}
}

// TestDrainDuringAStart: what nothing runs of is refused, what runs already may go on.
func TestDrainDuringAStart(t *testing.T) {
	t.Parallel()
	t.Run("preparing", func(t *testing.T) {
		t.Parallel()
		r, l := NewRegistry(), &fakeLauncher{preparing: newStep()}
		d := commit(t, r, candidate(t, "github", "1.0.0", "default", "a"), l)
		done := begin(t.Context(), r, d.Identity)
		<-l.preparing.reached
		require.True(t, r.Drain(d.Identity))
		require.Zero(t, l.closed.Load(), "a start is pending")
		close(l.preparing.pass)
		o := <-done
		require.ErrorIs(t, o.err, ErrUnavailable)
		require.Zero(t, l.starts.Load())
		require.EqualValues(t, 1, l.closed.Load())
		require.NoError(t, r.Close(t.Context()))
	})
	t.Run("starting", func(t *testing.T) {
		t.Parallel()
		r, l := NewRegistry(), &fakeLauncher{starting: newStep()}
		d := commit(t, r, candidate(t, "github", "1.0.0", "default", "a"), l)
		done := begin(t.Context(), r, d.Identity)
		<-l.starting.reached
		require.True(t, r.Drain(d.Identity))
		close(l.starting.pass)
		o := <-done
		require.NoError(t, o.err)
		require.EqualValues(t, 1, l.live.Load())
		require.NoError(t, o.connection.Close())
		require.EqualValues(t, 1, l.closed.Load())
		require.NoError(t, r.Close(t.Context()))
	})
	t.Run("release-that-cannot-be-closed", func(t *testing.T) {
		t.Parallel()
		r := NewRegistry()
		wrong := errors.New("wrong")
		d := commit(t, r, candidate(t, "github", "1.0.0", "default", "a"), closeFails{&fakeLauncher{}, wrong})
		require.True(t, r.Drain(d.Identity))
		require.ErrorIs(t, r.Settle(t.Context()), wrong)
	})
}

type closeFails struct {
	*fakeLauncher
	err error
}

func (l closeFails) Close() error { return l.err }
