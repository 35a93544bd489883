package route

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lendcli/lend/protocol/argv"
	"github.com/stretchr/testify/require"
)

var absolute = func() string {
	if runtime.GOOS == "windows" {
		return `C:\work`
	}
	return "/work"
}()

func TestCommit(t *testing.T) {
	t.Parallel()

	t.Run("publishes-under-epoch-and-generation", func(t *testing.T) {
		t.Parallel()
		r := NewRegistry()
		a := commit(t, r, candidate(t, "github", "1.0.0", "default", "a"), &fakeLauncher{})
		b := commit(t, r, candidate(t, "stripe", "1.0.0", "default", "a"), &fakeLauncher{})
		require.Len(t, r.Epoch(), 32)
		require.Equal(t, Generation{r.Epoch(), 1}, a.Identity.Generation)
		require.Equal(t, Generation{r.Epoch(), 2}, b.Identity.Generation)
		require.NotEqual(t, r.Epoch(), NewRegistry().Epoch(), "a boot has an epoch of its own")
	})

	t.Run("ignores-a-generation-that-is-given", func(t *testing.T) {
		t.Parallel()
		r := NewRegistry()
		d := candidate(t, "github", "1.0.0", "default", "a")
		d.Identity.Generation = Generation{"mine", 77}
		require.Equal(t, Generation{r.Epoch(), 1}, commit(t, r, d, &fakeLauncher{}).Identity.Generation)
	})

	t.Run("refuses-an-incomplete-identity", func(t *testing.T) {
		t.Parallel()
		var none Identity
		for field, spoil := range map[string]func(*Identity){
			"connection":            func(id *Identity) { id.Connection = none.Connection },
			"connector":             func(id *Identity) { id.Connector = none.Connector },
			"version":               func(id *Identity) { id.Version = none.Version },
			"digest-in-upper-case":  func(id *Identity) { id.ReleaseDigest = strings.Repeat("A", 64) },
			"hash-without-its-kind": func(id *Identity) { id.ContractHash = strings.Repeat("c", 64) },
		} {
			d := candidate(t, "github", "1.0.0", "default", "a")
			spoil(&d.Identity)
			_, err := NewRegistry().Commit(t.Context(), d, &fakeLauncher{})
			require.ErrorIs(t, err, ErrInvalid, field)
		}
		_, err := NewRegistry().Commit(t.Context(), candidate(t, "github", "1.0.0", "default", "a"), nil)
		require.ErrorIs(t, err, ErrInvalid)
	})

	t.Run("candidate-is-current-before-the-old-one-closes", func(t *testing.T) {
		t.Parallel()
		r := NewRegistry()
		hang := make(chan struct{})
		old := &fakeLauncher{make: func(p *fakeProcess) { p.hang = hang }}
		first := commit(t, r, candidate(t, "github", "1.0.0", "default", "a"), old)
		_, err := r.StartCLI(t.Context(), request(first.Identity))
		require.NoError(t, err)

		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan Descriptor)
		next := candidate(t, "github", "1.0.0", "default", "b")
		go func() {
			d, err := r.Commit(ctx, next, &fakeLauncher{})
			if err == nil {
				d = Descriptor{}
			}
			done <- d
		}()
		require.Eventually(t, func() bool {
			d, err := r.Resolve(Query{first.Identity.Connector, first.Identity.Version, first.Identity.Connection})
			return err == nil && d.Identity.ReleaseDigest == strings.Repeat("b", 64)
		}, 5*time.Second, time.Millisecond, "current while the old one still closes")
		_, err = r.StartCLI(t.Context(), request(first.Identity))
		require.ErrorIs(t, err, ErrIdentityMismatch)
		cancel()
		second := <-done
		require.EqualValues(t, 2, second.Identity.Generation.Number, "the clean-up error comes with the new route")
		_, err = r.StartCLI(t.Context(), request(second.Identity))
		require.NoError(t, err)
		require.Zero(t, old.closed.Load(), "the old release is still in use")
		close(hang)
		require.NoError(t, r.Settle(t.Context()))
		require.EqualValues(t, 1, old.closed.Load())
		require.Zero(t, old.live.Load())
		require.NoError(t, r.Close(t.Context()))
	})

	t.Run("a-full-or-closed-registry-refuses", func(t *testing.T) {
		t.Parallel()
		r := NewRegistry()
		require.NoError(t, r.Close(t.Context()))
		_, err := r.Commit(t.Context(), candidate(t, "github", "1.0.0", "default", "a"), &fakeLauncher{})
		require.ErrorIs(t, err, ErrUnavailable)
		_, err = r.StartCLI(t.Context(), request(withGeneration(candidate(t, "github", "1.0.0", "default", "a").Identity)))
		require.ErrorIs(t, err, ErrUnavailable)
	})
}

func withGeneration(id Identity) Identity {
	id.Generation = Generation{"epoch", 1}
	return id
}

// spoilers change one field of an identity to another well-formed value.
func spoilers(t *testing.T) map[string]func(*Identity) {
	t.Helper()
	return map[string]func(*Identity){
		"connection": func(id *Identity) { id.Connection = connectionID(t, "other") },
		"connector":  func(id *Identity) { id.Connector = connectorKey(t, "other") },
		"version":    func(id *Identity) { id.Version = version(t, "9.9.9") },
		"digest":     func(id *Identity) { id.ReleaseDigest = strings.Repeat("0", 64) },
		"epoch":      func(id *Identity) { id.Generation.Epoch = strings.Repeat("0", 32) },
		"generation": func(id *Identity) { id.Generation.Number++ },
		"hash":       func(id *Identity) { id.ContractHash = "sha256:" + strings.Repeat("0", 64) },
	}
}

func TestStartCLIIdentity(t *testing.T) {
	t.Parallel()
	r := NewRegistry()
	l := &fakeLauncher{}
	d := commit(t, r, candidate(t, "github", "1.0.0", "default", "a"), l)
	for field, spoil := range spoilers(t) {
		id := d.Identity
		spoil(&id)
		_, err := r.StartCLI(t.Context(), request(id))
		require.ErrorIs(t, err, ErrIdentityMismatch, field)
	}
	require.Zero(t, l.starts.Load(), "a wrong identity starts nothing")
	c, err := r.StartCLI(t.Context(), request(d.Identity))
	require.NoError(t, err)
	require.NoError(t, c.Close())

	commit(t, r, candidate(t, "github", "1.0.0", "default", "a"), &fakeLauncher{})
	_, err = r.StartCLI(t.Context(), request(d.Identity))
	require.ErrorIs(t, err, ErrIdentityMismatch, "an equal release under a newer generation")
}

func TestStartCLIBounds(t *testing.T) {
	t.Parallel()
	r := NewRegistry()
	l := &fakeLauncher{}
	d := commit(t, r, candidate(t, "github", "1.0.0", "default", "a"), l)
	for what, change := range map[string]func(*StartCLIRequest){
		"relative-directory":  func(q *StartCLIRequest) { q.WorkingDirectory = "work" },
		"empty-directory":     func(q *StartCLIRequest) { q.WorkingDirectory = "" },
		"nul-in-directory":    func(q *StartCLIRequest) { q.WorkingDirectory += "\x00" },
		"257-arguments":       func(q *StartCLIRequest) { q.Arguments = make([]string, 257) },
		"one-long-argument":   func(q *StartCLIRequest) { q.Arguments = []string{strings.Repeat("x", MaxArgumentBytes+1)} },
		"long-together":       func(q *StartCLIRequest) { q.Arguments = slicesOf(strings.Repeat("x", MaxArgumentTotal/4), 5) },
		"nul-in-argument":     func(q *StartCLIRequest) { q.Arguments = []string{"a\x00b"} },
		"nameless-variable":   func(q *StartCLIRequest) { q.Environment = []argv.Variable{{Name: "", Value: "x"}} },
		"equals-in-variable":  func(q *StartCLIRequest) { q.Environment = []argv.Variable{{Name: "A=B", Value: "x"}} },
		"nul-in-variable":     func(q *StartCLIRequest) { q.Environment = []argv.Variable{{Name: "A", Value: "\x00"}} },
		"no-epoch":            func(q *StartCLIRequest) { q.Generation.Epoch = "" },
		"no-generation":       func(q *StartCLIRequest) { q.Generation.Number = 0 },
		"upper-case-digest":   func(q *StartCLIRequest) { q.ReleaseDigest = strings.Repeat("A", 64) },
		"digest-not-hex":      func(q *StartCLIRequest) { q.ReleaseDigest = strings.Repeat("x", 64) },
		"hash-without-prefix": func(q *StartCLIRequest) { q.ContractHash = strings.Repeat("c", 64) },
		"zero-identity":       func(q *StartCLIRequest) { q.Identity = Identity{} },
		"negative-processes":  func(q *StartCLIRequest) { q.Limits.Processes = -1 },
		"negative-memory":     func(q *StartCLIRequest) { q.Limits.Memory = -1 },
	} {
		q := request(d.Identity)
		change(&q)
		_, err := r.StartCLI(t.Context(), q)
		require.ErrorIs(t, err, ErrInvalid, what)
	}
	require.Zero(t, l.starts.Load())

	q := request(d.Identity)
	q.Arguments = append(slicesOf("", 254), strings.Repeat("x", MaxArgumentBytes), strings.Repeat("x", MaxArgumentBytes))
	c, err := r.StartCLI(t.Context(), q)
	require.NoError(t, err, "exactly at the bounds")
	require.NoError(t, c.Close())
}

func slicesOf(s string, n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = s
	}
	return all
}

func TestResolve(t *testing.T) {
	t.Parallel()
	r := NewRegistry()
	work := commit(t, r, candidate(t, "github", "1.0.0", "work", "a"), &fakeLauncher{})
	home := commit(t, r, candidate(t, "github", "1.0.0", "home", "a"), &fakeLauncher{})
	next := commit(t, r, candidate(t, "github", "2.0.0", "work", "b"), &fakeLauncher{})
	query := Query{Connector: work.Identity.Connector, Version: work.Identity.Version}

	_, err := r.Resolve(query)
	require.ErrorIs(t, err, ErrAmbiguous)
	query.Connection = home.Identity.Connection
	got, err := r.Resolve(query)
	require.NoError(t, err)
	require.Equal(t, home, got)
	query = Query{Connector: next.Identity.Connector, Version: next.Identity.Version}
	got, err = r.Resolve(query)
	require.NoError(t, err)
	require.Equal(t, next, got)

	for what, q := range map[string]Query{
		"other-key":        {Connector: connectorKey(t, "gitlab"), Version: version(t, "1.0.0")},
		"other-version":    {Connector: connectorKey(t, "github"), Version: version(t, "1.0.1")},
		"no-version":       {Connector: connectorKey(t, "github")},
		"other-connection": {Connector: connectorKey(t, "github"), Version: version(t, "2.0.0"), Connection: connectionID(t, "home")},
		"nothing":          {},
	} {
		_, err := r.Resolve(q)
		require.ErrorIs(t, err, ErrNotFound, what)
	}

	revision, all := r.Snapshot()
	require.EqualValues(t, 3, revision)
	require.Equal(t, []Descriptor{home, work, next}, all, "sorted by key, version, connection")
}

func TestRemove(t *testing.T) {
	t.Parallel()

	t.Run("closes-what-runs-once", func(t *testing.T) {
		t.Parallel()
		r := NewRegistry()
		l := &fakeLauncher{}
		d := commit(t, r, candidate(t, "github", "1.0.0", "default", "a"), l)
		var all []*CLIConnection
		for range 5 {
			c, err := r.StartCLI(t.Context(), request(d.Identity))
			require.NoError(t, err)
			all = append(all, c)
		}
		require.NoError(t, r.Remove(t.Context(), d.Identity))
		require.Zero(t, l.live.Load())
		require.EqualValues(t, 1, l.closed.Load(), "the release is let go of")
		for _, c := range all {
			e, err := c.Wait(t.Context())
			require.NoError(t, err)
			require.True(t, e.Retired)
			require.NoError(t, c.Close())
			require.NoError(t, c.Close())
			require.EqualValues(t, 1, c.process.(*fakeProcess).closes.Load())
		}
		require.NoError(t, r.Remove(t.Context(), d.Identity), "gone is gone")
		require.EqualValues(t, 1, l.closed.Load())
		_, err := r.Resolve(Query{Connector: d.Identity.Connector, Version: d.Identity.Version})
		require.ErrorIs(t, err, ErrNotFound)
	})

	t.Run("another-identity-removes-nothing", func(t *testing.T) {
		t.Parallel()
		r := NewRegistry()
		d := commit(t, r, candidate(t, "github", "1.0.0", "default", "a"), &fakeLauncher{})
		for field, spoil := range spoilers(t) {
			id := d.Identity
			spoil(&id)
			require.NoError(t, r.Remove(t.Context(), id), field)
		}
		_, all := r.Snapshot()
		require.Equal(t, []Descriptor{d}, all)
	})

	t.Run("failed-close-is-kept-for-retry", func(t *testing.T) {
		t.Parallel()
		r := NewRegistry()
		broken := true
		l := &fakeLauncher{make: func(p *fakeProcess) {
			p.stubborn = true
			p.closeErr = func() error {
				if broken {
					return errClose
				}
				return nil
			}
		}}
		d := commit(t, r, candidate(t, "github", "1.0.0", "default", "a"), l)
		c, err := r.StartCLI(t.Context(), request(d.Identity))
		require.NoError(t, err)
		require.ErrorIs(t, c.Close(), errClose)
		require.ErrorIs(t, r.Remove(t.Context(), d.Identity), errClose)
		_, err = r.StartCLI(t.Context(), request(d.Identity))
		require.ErrorIs(t, err, ErrIdentityMismatch, "fenced although not closed")
		require.Zero(t, l.closed.Load())
		require.ErrorIs(t, r.Settle(t.Context()), errClose)
		broken = false
		require.NoError(t, r.Remove(t.Context(), d.Identity))
		require.Zero(t, l.live.Load())
		require.EqualValues(t, 1, l.closed.Load())
		require.ErrorIs(t, c.Close(), errClose, "Close says the same each time")
		require.NoError(t, r.Close(t.Context()))
	})

	t.Run("deadline-returns-and-the-close-goes-on", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			r := NewRegistry()
			hang := make(chan struct{})
			l := &fakeLauncher{make: func(p *fakeProcess) { p.hang = hang }}
			d := commit(t, r, candidate(t, "github", "1.0.0", "default", "a"), l)
			for range 3 {
				_, err := r.StartCLI(t.Context(), request(d.Identity))
				require.NoError(t, err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			begin := time.Now()
			require.ErrorIs(t, r.Remove(ctx, d.Identity), context.DeadlineExceeded)
			require.Equal(t, 3*time.Second, time.Since(begin), "all in parallel, within one deadline")
			close(hang)
			require.NoError(t, r.Settle(t.Context()))
			require.EqualValues(t, 1, l.last.Load().closes.Load(), "a close under way is joined, not repeated")
		})
	})

	t.Run("terminate-comes-before-kill", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			r := NewRegistry()
			l := &fakeLauncher{make: func(p *fakeProcess) { p.stubborn = true }}
			d := commit(t, r, candidate(t, "github", "1.0.0", "default", "a"), l)
			c, err := r.StartCLI(t.Context(), request(d.Identity))
			require.NoError(t, err)
			begin := time.Now()
			require.NoError(t, r.Remove(t.Context(), d.Identity))
			require.Equal(t, retireGrace, time.Since(begin))
			require.EqualValues(t, 1, l.last.Load().terms.Load())
			e, err := c.Wait(t.Context())
			require.NoError(t, err)
			require.Equal(t, Exit{Signal: "SIGKILL", Retired: true}, e)
		})
	})
}
