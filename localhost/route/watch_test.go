package route

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestRouteRegistryDiscoveryReadsTheProjectionOnly: what is watched are descriptors
// and their revision, of which none is lost and none is queued.
func TestRouteRegistryDiscoveryReadsTheProjectionOnly(t *testing.T) {
	t.Parallel()

	t.Run("an-empty-registry-has-nothing-new", func(t *testing.T) {
		t.Parallel()
		r := NewRegistry()
		ctx, cancel := context.WithCancelCause(t.Context())
		gone := errors.New("gone")
		cancel(gone)
		_, _, err := r.Next(ctx, 0)
		require.ErrorIs(t, err, gone)
	})

	t.Run("each-change-is-newer", func(t *testing.T) {
		t.Parallel()
		r := NewRegistry()
		a := commit(t, r, candidate(t, "github", "1.0.0", "default", "a"), &fakeLauncher{})
		seen, all, err := r.Next(t.Context(), 0)
		require.NoError(t, err)
		require.Equal(t, []Descriptor{a}, all)
		b := commit(t, r, candidate(t, "github", "1.0.0", "default", "b"), &fakeLauncher{})
		next, all, err := r.Next(t.Context(), seen)
		require.NoError(t, err)
		require.Greater(t, next, seen)
		require.Equal(t, []Descriptor{b}, all)
		require.NoError(t, r.Remove(t.Context(), b.Identity))
		last, all, err := r.Next(t.Context(), next)
		require.NoError(t, err)
		require.Greater(t, last, next)
		require.Empty(t, all)
		require.NoError(t, r.Remove(t.Context(), b.Identity), "not there: no change")
		again, _ := r.Snapshot()
		require.Equal(t, last, again)
	})

	t.Run("many-changes-are-one", func(t *testing.T) {
		t.Parallel()
		r := NewRegistry()
		waiting := r.Changed(0)
		var last Descriptor
		for range 1000 {
			last = commit(t, r, candidate(t, "github", "1.0.0", "default", "a"), &fakeLauncher{})
		}
		<-waiting
		seen, all, err := r.Next(t.Context(), 0)
		require.NoError(t, err)
		require.EqualValues(t, 1000, seen)
		require.Equal(t, []Descriptor{last}, all)
	})

	t.Run("who-waits-is-woken-once-something-changes", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			r := NewRegistry()
			done := make(chan uint64)
			go func() {
				seen, _, _ := r.Next(t.Context(), 0)
				done <- seen
			}()
			synctest.Wait()
			select {
			case <-done:
				t.Fatal("nothing has changed")
			default:
			}
			commit(t, r, candidate(t, "github", "1.0.0", "default", "a"), &fakeLauncher{})
			require.EqualValues(t, 1, <-done)
		})
	})

	t.Run("closing-is-the-last-change", func(t *testing.T) {
		t.Parallel()
		r := NewRegistry()
		commit(t, r, candidate(t, "github", "1.0.0", "default", "a"), &fakeLauncher{})
		waiting := r.Changed(1)
		require.NoError(t, r.Close(t.Context()))
		<-waiting
		seen, all, err := r.Next(t.Context(), 1)
		require.NoError(t, err)
		require.Empty(t, all)
		_, _, err = r.Next(t.Context(), seen)
		require.ErrorIs(t, err, ErrUnavailable)
		require.NoError(t, r.Close(t.Context()))
		again, _ := r.Snapshot()
		require.Equal(t, seen, again, "closing twice is one change")
	})
}

// TestWatchersMissNothing: whoever follows the registry ends with its newest set,
// and sees revisions that only grow.
func TestWatchersMissNothing(t *testing.T) {
	t.Parallel()
	r := NewRegistry()
	var watchers sync.WaitGroup
	for range 8 {
		watchers.Go(func() {
			var seen uint64
			for {
				next, _, err := r.Next(context.Background(), seen)
				if err != nil {
					now, _ := r.Snapshot()
					if !errors.Is(err, ErrUnavailable) || seen != now {
						t.Errorf("ended at %d of %d: %v", seen, now, err)
					}
					return
				}
				if next <= seen {
					t.Errorf("%d after %d", next, seen)
				}
				seen = next
			}
		})
	}
	var writers sync.WaitGroup
	for _, key := range []string{"a", "b", "c"} {
		writers.Go(func() {
			for range 200 {
				d, err := r.Commit(context.Background(), candidate(t, key, "1.0.0", "default", "a"), &fakeLauncher{})
				if err == nil {
					err = r.Remove(context.Background(), d.Identity)
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	require.NoError(t, r.Close(t.Context()))
	watchers.Wait()
}

func TestActivityIsWhatRuns(t *testing.T) {
	t.Parallel()
	r := NewRegistry()
	preparing := newStep()
	l := &fakeLauncher{preparing: preparing}
	d := commit(t, r, candidate(t, "github", "1.0.0", "default", "a"), l)
	at, all := r.Activity()
	require.Equal(t, []Activity{{Identity: d.Identity}}, all)

	waiting := r.ActivityChanged(at)
	started := make(chan *CLIConnection)
	go func() {
		c, err := r.StartCLI(context.Background(), request(d.Identity))
		if err != nil {
			t.Error(err)
		}
		started <- c
	}()
	<-waiting
	<-preparing.reached
	at, all = r.Activity()
	require.Equal(t, []Activity{{Identity: d.Identity, Starting: 1}}, all)
	waiting = r.ActivityChanged(at)
	close(preparing.pass)
	c := <-started
	<-waiting
	at, all = r.Activity()
	require.Equal(t, []Activity{{Identity: d.Identity, Running: 1}}, all)
	routes, _ := r.Snapshot()
	require.EqualValues(t, 1, routes, "a start is no change of the routes")

	waiting = r.ActivityChanged(at)
	require.NoError(t, c.Close())
	<-waiting
	at, all = r.Activity()
	require.Equal(t, []Activity{{Identity: d.Identity}}, all)

	l.fail = ErrUnavailable
	waiting = r.ActivityChanged(at)
	_, err := r.StartCLI(t.Context(), request(d.Identity))
	require.ErrorIs(t, err, ErrUnavailable)
	<-waiting
	at, all = r.Activity()
	require.Equal(t, []Activity{{Identity: d.Identity}}, all, "a start that failed leaves nothing")

	waiting = r.ActivityChanged(at)
	require.NoError(t, r.Remove(t.Context(), d.Identity))
	<-waiting
	_, all = r.Activity()
	require.Empty(t, all)
}

// TestActivityShowsWhatCouldNotBeClosed: a route that is no longer current is shown
// until nothing of it is left.
func TestActivityShowsWhatCouldNotBeClosed(t *testing.T) {
	t.Parallel()
	r := NewRegistry()
	broken := true
	l := &fakeLauncher{make: func(p *fakeProcess) {
		p.closeErr = func() error {
			if broken {
				return errClose
			}
			return nil
		}
	}}
	old := commit(t, r, candidate(t, "github", "1.0.0", "default", "a"), l)
	_, err := r.StartCLI(t.Context(), request(old.Identity))
	require.NoError(t, err)
	next, err := r.Commit(t.Context(), candidate(t, "github", "1.0.0", "default", "b"), &fakeLauncher{})
	require.ErrorIs(t, err, errClose)
	at, all := r.Activity()
	require.Equal(t, []Activity{{Identity: old.Identity, Running: 1, Retiring: true}, {Identity: next.Identity}}, all)
	broken = false
	waiting := r.ActivityChanged(at)
	require.NoError(t, r.Settle(t.Context()))
	<-waiting
	_, all = r.Activity()
	require.Equal(t, []Activity{{Identity: next.Identity}}, all)
}

func TestHints(t *testing.T) {
	t.Parallel()
	r := NewRegistry()
	old := candidate(t, "github", "2.0.0", "home", "a")
	old.DisplayName, old.Aliases = "Old", []string{"hub"}
	commit(t, r, old, &fakeLauncher{})
	aliases := []string{"GitHub", "gh"}
	next := candidate(t, "github", "1.0.0", "home", "b")
	next.DisplayName, next.Aliases = "New", aliases
	commit(t, r, next, &fakeLauncher{})
	next.Identity.Connection = connectionID(t, "work")
	commit(t, r, next, &fakeLauncher{})
	commit(t, r, candidate(t, "aws", "1.0.0", "home", "b"), &fakeLauncher{})
	aliases[0] = "changed by its maker"

	_, routes := r.Snapshot()
	hints := Hints(routes)
	require.Len(t, hints, 2)
	require.Equal(t, "aws", hints[0].Connector.String())
	want := Hint{
		Connector: next.Identity.Connector, DisplayName: "New", Aliases: []string{"GitHub", "gh"}, Command: "fake",
		Versions: append(hints[1].Versions[:0:0], version(t, "1.0.0"), version(t, "2.0.0")),
	}
	want.Connections = append(want.Connections, connectionID(t, "home"), connectionID(t, "work"))
	require.Equal(t, want, hints[1])
	hints[1].Aliases[0] = "changed by its reader"
	_, routes = r.Snapshot()
	require.Equal(t, "GitHub", Hints(routes)[1].Aliases[0])
	require.Empty(t, Hints(nil))
}

// TestDiscoverySummaryIsBounded: a descriptor that says too much is not published.
func TestDiscoverySummaryIsBounded(t *testing.T) {
	t.Parallel()
	r := NewRegistry()
	ok := candidate(t, "github", "1.0.0", "default", "a")
	ok.DisplayName = strings.Repeat("n", MaxDisplayName)
	ok.Probe = &Probe{Arguments: make([]string, MaxProbeArguments), Timeout: MaxProbeTime}
	ok.Probe.Arguments[0] = strings.Repeat("p", MaxProbeBytes)
	for range MaxAliases {
		ok.Aliases = append(ok.Aliases, strings.Repeat("a", MaxAlias))
	}
	commit(t, r, ok, &fakeLauncher{})
	at, _ := r.Snapshot()
	for title, spoil := range map[string]func(*Descriptor){
		"name":       func(d *Descriptor) { d.DisplayName += "n" },
		"aliases":    func(d *Descriptor) { d.Aliases = append(d.Aliases, "x") },
		"alias":      func(d *Descriptor) { d.Aliases = []string{strings.Repeat("a", MaxAlias+1)} },
		"probe":      func(d *Descriptor) { d.Probe = &Probe{Timeout: time.Second} },
		"probe-time": func(d *Descriptor) { d.Probe = &Probe{Arguments: []string{"a"}, Timeout: MaxProbeTime + 1} },
		"probe-ever": func(d *Descriptor) { d.Probe = &Probe{Arguments: []string{"a"}} },
		"probe-many": func(d *Descriptor) {
			d.Probe = &Probe{Arguments: make([]string, MaxProbeArguments+1), Timeout: time.Second}
		},
		"probe-long": func(d *Descriptor) {
			d.Probe = &Probe{Arguments: []string{strings.Repeat("p", MaxProbeBytes), "p"}, Timeout: time.Second}
		},
		"probe-nul":   func(d *Descriptor) { d.Probe = &Probe{Arguments: []string{"a\x00"}, Timeout: time.Second} },
		"empty-alias": func(d *Descriptor) { d.Aliases = []string{""} },
	} {
		bad := ok
		bad.Aliases = append([]string(nil), ok.Aliases...)
		spoil(&bad)
		_, err := r.Commit(t.Context(), bad, &fakeLauncher{})
		require.ErrorIs(t, err, ErrInvalid, title)
	}
	now, _ := r.Snapshot()
	require.Equal(t, at, now)
}

// TestHintsCoverTheRoutes: each route is in exactly one hint, whatever their order.
func TestHintsCoverTheRoutes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		type place struct{ key, version, connection string }
		want := map[place]bool{}
		var routes []Descriptor
		for i := range rapid.IntRange(0, 8).Draw(t, "routes") {
			p := place{
				rapid.SampledFrom([]string{"a", "b"}).Draw(t, "key"), rapid.SampledFrom([]string{"1.0.0", "2.0.0"}).Draw(t, "version"),
				rapid.SampledFrom([]string{"home", "work"}).Draw(t, "connection"),
			}
			d := candidate(t, p.key, p.version, p.connection, "a")
			d.Identity.Generation.Number = uint64(i + 1)
			routes = append(routes, d)
			want[p] = true
		}
		seen := map[string]bool{}
		for _, h := range Hints(routes) {
			require.False(t, seen[h.Connector.String()], "once")
			seen[h.Connector.String()] = true
			for p := range want {
				if p.key == h.Connector.String() {
					require.Contains(t, h.Versions, version(t, p.version))
					require.Contains(t, h.Connections, connectionID(t, p.connection))
				}
			}
		}
		for p := range want {
			require.True(t, seen[p.key])
		}
	})
}
