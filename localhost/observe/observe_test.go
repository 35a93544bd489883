package observe

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lendcli/lend/localhost/artifact"
	"github.com/lendcli/lend/localhost/inspect"
	"github.com/lendcli/lend/localhost/install"
	"github.com/lendcli/lend/localhost/route"
	"github.com/lendcli/lend/protocol/argv"
	"github.com/lendcli/lend/protocol/name"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// process lives until it is closed, which fails while stuck.
type process struct {
	stuck *atomic.Bool
}

func (process) Stdin() io.WriteCloser { return nil }
func (process) Stdout() io.ReadCloser { return io.NopCloser(strings.NewReader("")) }
func (process) Stderr() io.ReadCloser { return io.NopCloser(strings.NewReader("")) }
func (process) Terminate() error      { return nil }
func (process) Kill() error           { return nil }

func (process) Wait(context.Context) (route.Exit, error) { return route.Exit{}, nil }

func (p process) Close() error {
	if p.stuck.Load() {
		return errors.New("it lives")
	}
	return nil
}

type launcher struct{ stuck atomic.Bool }

func (l *launcher) Prepare(context.Context, route.StartCLIRequest) (route.Starter, error) {
	return starter{l}, nil
}

type starter struct{ *launcher }

func (s starter) Start(context.Context) (route.Process, error) { return process{&s.stuck}, nil }
func (starter) Drop()                                          {}

func (*launcher) Close() error { return nil }

func identity(t *testing.T, key, connection, content string) route.Identity {
	t.Helper()
	k, err := name.ParseConnectorKey(key)
	require.NoError(t, err)
	v, err := name.ParseVersion("1.0.0")
	require.NoError(t, err)
	c, err := name.ParseConnectionID(connection)
	require.NoError(t, err)
	return route.Identity{
		Connector: k, Version: v, Connection: c,
		ReleaseDigest: strings.Repeat(content, 64), ContractHash: "sha256:" + strings.Repeat("c", 64),
	}
}

// world is a machine: its disk is what a test says.
type world struct {
	t        *testing.T
	routes   *route.Registry
	launcher *launcher

	mu       sync.Mutex
	disk     disk
	looks    int
	receipts []Receipt
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return &world{t: t, routes: route.NewRegistry(), launcher: &launcher{}}
}

func (w *world) observer() *Observer {
	return start(Config{Store: "/store", Routes: w.routes, Receipts: w.all}, w.inspect)
}

func (w *world) inspect(_ context.Context, dir string) disk {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.looks++
	if dir != "/store" {
		w.t.Error(dir)
	}
	return w.disk
}

func (w *world) all() []Receipt {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]Receipt(nil), w.receipts...)
}

func (w *world) looked() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.looks
}

func (w *world) set(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

func installed(id route.Identity) inspect.Result {
	return inspect.Result{
		Connector: id.Connector, Version: id.Version, State: inspect.Present, Release: &install.Release{Digest: id.ReleaseDigest},
	}
}

func (w *world) commit(id route.Identity) route.Identity {
	w.t.Helper()
	d, err := w.routes.Commit(w.t.Context(), route.Descriptor{Identity: id, Contract: argv.Contract{Command: "fake"}}, w.launcher)
	require.NoError(w.t, err)
	return d.Identity
}

func (w *world) start(id route.Identity) *route.CLIConnection {
	w.t.Helper()
	c, err := w.routes.StartCLI(w.t.Context(), route.StartCLIRequest{Identity: id, WorkingDirectory: w.t.TempDir()})
	require.NoError(w.t, err)
	return c
}

// TestPhysicalObservations: one connection through its life, in snapshots that say
// what is so and nothing else.
func TestPhysicalObservations(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		o := w.observer()
		next := func(seen uint64) Snapshot {
			t.Helper()
			s, err := o.Next(t.Context(), seen)
			require.NoError(t, err)
			require.Greater(t, s.Revision, seen)
			return s
		}
		s := next(0)
		require.EqualValues(t, 1, s.Revision)
		require.Empty(t, s.Connections)

		// on the disk, and nothing else
		a := identity(t, "github", "home", "a")
		w.set(func() { w.disk.releases = []inspect.Result{installed(a)} })
		fresh, err := o.Refresh(t.Context())
		require.NoError(t, err)
		require.Equal(t, []Connection{{Connector: a.Connector, Version: a.Version, Installed: inspect.Present, Digest: a.ReleaseDigest}}, fresh.Connections)
		require.EqualValues(t, 2, fresh.Revision)

		// a reconciliation that failed names the connection
		failed := Receipt{Identity: a, State: "failed", Problem: true, At: time.Now()}
		w.set(func() { w.receipts = []Receipt{failed} })
		s, err = o.Refresh(t.Context())
		require.NoError(t, err)
		want := Connection{
			Connector: a.Connector, Version: a.Version, Connection: a.Connection,
			Installed: inspect.Present, Digest: a.ReleaseDigest, Receipt: failed,
		}
		require.Equal(t, []Connection{want}, s.Connections)

		// a route, and what runs of it
		published := w.commit(a)
		want.Receipt = Receipt{Identity: published, State: "published", At: time.Now()}
		w.set(func() { w.receipts = append(w.receipts, want.Receipt) })
		s = next(s.Revision)
		want.Route = published
		require.Equal(t, []Connection{want}, s.Connections)
		require.True(t, want.Current())
		require.False(t, want.Outdated())
		first := w.start(published)
		w.start(published)
		s = next(s.Revision)
		want.Running = 2
		require.Equal(t, []Connection{want}, s.Connections)
		require.NoError(t, first.Close())
		s = next(s.Revision)
		want.Running = 1
		require.Equal(t, []Connection{want}, s.Connections)

		// another release on the disk: what runs is of the one before
		b := identity(t, "github", "home", "b")
		w.set(func() { w.disk.releases = []inspect.Result{installed(b)} })
		s, err = o.Refresh(t.Context())
		require.NoError(t, err)
		want.Digest = b.ReleaseDigest
		require.Equal(t, []Connection{want}, s.Connections)
		require.True(t, s.Connections[0].Outdated())

		// it takes its place, but a process of the one before does not end
		w.launcher.stuck.Store(true)
		d, err := w.routes.Commit(t.Context(), route.Descriptor{Identity: b}, w.launcher)
		require.ErrorContains(t, err, "it lives")
		s = next(s.Revision)
		want.Route, want.Running, want.Leaving = d.Identity, 0, 1
		require.Equal(t, []Connection{want}, s.Connections)
		require.False(t, s.Connections[0].Outdated())

		// removed from the disk and retired; the process is still there
		w.set(func() { w.disk.releases = nil })
		require.NoError(t, w.routes.Remove(t.Context(), d.Identity))
		gone := Receipt{Identity: d.Identity, State: retired, At: time.Now()}
		w.set(func() { w.receipts = append(w.receipts, gone) })
		s = next(s.Revision)
		require.Equal(t, []Connection{{
			Connector: a.Connector, Version: a.Version, Connection: a.Connection,
			Installed: inspect.Absent, Reason: inspect.NotInstalled, Leaving: 1, Receipt: gone,
		}}, s.Connections)

		// until it is gone
		w.launcher.stuck.Store(false)
		require.NoError(t, w.routes.Settle(t.Context()))
		s = next(s.Revision)
		require.Empty(t, s.Connections)

		o.Close()
		_, err = o.Next(t.Context(), s.Revision)
		require.ErrorIs(t, err, ErrClosed)
		again, err := o.Next(t.Context(), 0)
		require.NoError(t, err, "what there is, is told")
		require.Equal(t, s, again)
		_, err = o.Refresh(t.Context())
		require.ErrorIs(t, err, ErrClosed)
		o.Close()
		require.NoError(t, w.routes.Close(t.Context()))
	})
}

// TestDraining: what an update replaced, and still runs, is neither unknown nor left over.
func TestDraining(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.commit(identity(t, "github", "home", "a"))
		runs := w.start(a)
		w.start(a)
		require.True(t, w.routes.Drain(a))
		o := w.observer()
		s, err := o.Next(t.Context(), 0)
		require.NoError(t, err)
		want := Connection{
			Connector: a.Connector, Version: a.Version, Connection: a.Connection,
			Installed: inspect.Absent, Reason: inspect.Superseded, Leaving: 2, Draining: 2,
		}
		require.Equal(t, []Connection{want}, s.Connections)

		// it is added again meanwhile
		w.set(func() { w.disk.releases = []inspect.Result{installed(a)} })
		s, err = o.Refresh(t.Context())
		require.NoError(t, err)
		want.Installed, want.Reason, want.Digest = inspect.Present, "", a.ReleaseDigest
		require.Equal(t, []Connection{want}, s.Connections)

		require.NoError(t, runs.Close())
		s, err = o.Next(t.Context(), s.Revision)
		require.NoError(t, err)
		want.Leaving, want.Draining = 1, 1
		require.Equal(t, []Connection{want}, s.Connections)
		o.Close()
		require.NoError(t, w.routes.Close(t.Context()))
	})
}

// TestSnapshotsAreImmutable: who changes one changes no other.
func TestSnapshotsAreImmutable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.disk.releases = []inspect.Result{installed(identity(t, "github", "home", "a"))}
		o := w.observer()
		s, err := o.Next(t.Context(), 0)
		require.NoError(t, err)
		want := s.Connections[0]
		s.Connections[0] = Connection{}
		require.Equal(t, want, o.Now().Connections[0])
		o.Close()
		require.NoError(t, w.routes.Close(t.Context()))
	})
}

// TestFastChangesAreOneSnapshot: a thousand starts do not make a thousand snapshots
// nor looks at the disk, and the last of them is seen.
func TestFastChangesAreOneSnapshot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		id := w.commit(identity(t, "github", "home", "a"))
		o := w.observer()
		before, err := o.Next(t.Context(), 0)
		require.NoError(t, err)
		looks := w.looked()
		for range 1000 {
			w.start(id)
		}
		time.Sleep(2 * gap) // of the fake clock
		s := o.Now()
		require.Equal(t, 1000, s.Connections[0].Running)
		require.LessOrEqual(t, s.Revision, before.Revision+2)
		require.Equal(t, looks, w.looked(), "starts are no reason to read the disk")
		o.Close()
		require.NoError(t, w.routes.Close(t.Context()))
	})
}

// TestTheDiskIsLookedAt: every now and then, after changes of the routes, and when
// somebody asks; what says nothing new is no snapshot.
func TestTheDiskIsLookedAt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		o := w.observer()
		synctest.Wait()
		require.Equal(t, 1, w.looked())
		time.Sleep(10*defaultEvery + time.Second) // of the fake clock
		require.Equal(t, 11, w.looked())
		require.EqualValues(t, 1, o.Now().Revision)

		id := identity(t, "github", "home", "a")
		w.set(func() { w.disk.releases = []inspect.Result{installed(id)} })
		w.commit(id)
		s, err := o.Next(t.Context(), 1)
		require.NoError(t, err)
		require.Equal(t, 12, w.looked())
		require.Equal(t, inspect.Present, s.Connections[0].Installed)

		_, err = o.Refresh(t.Context())
		require.NoError(t, err)
		require.Equal(t, 13, w.looked())
		o.Close()
		require.NoError(t, w.routes.Close(t.Context()))
	})
}

// TestADiskThatCannotBeRead: what runs is shown all the same, and nothing is called
// installed or absent.
func TestADiskThatCannotBeRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.disk.err = errors.New("no such device")
		id := w.commit(identity(t, "github", "home", "a"))
		w.start(id)
		o := w.observer()
		s, err := o.Next(t.Context(), 0)
		require.NoError(t, err)
		require.Equal(t, "no such device", s.Problem)
		require.Equal(t, []Connection{{
			Connector: id.Connector, Version: id.Version, Connection: id.Connection,
			Installed: inspect.Indeterminate, Reason: inspect.Unreadable, Route: id, Running: 1,
		}}, s.Connections)
		require.True(t, s.Connections[0].Outdated(), "not known to be what the disk has")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = o.Next(ctx, s.Revision)
		require.ErrorIs(t, err, context.Canceled)
		o.Close()
		require.NoError(t, w.routes.Close(t.Context()))
	})
}

// TestConnectionsThatWereRemoved: a release that stays does not bring a retired
// connection back, and one that is disabled is shown.
func TestConnectionsThatWereRemoved(t *testing.T) {
	t.Parallel()
	home, work := identity(t, "github", "home", "a"), identity(t, "github", "work", "a")
	d := disk{releases: []inspect.Result{installed(home)}}
	all := composed(d, nil, nil, []Receipt{
		{Identity: home, State: "published"},
		{Identity: work, State: "published"},
		{Identity: home, State: retired},
		{Identity: work, State: "disabled"},
	})
	require.Len(t, all, 1)
	require.Equal(t, "work", all[0].Connection.String())
	require.Equal(t, "disabled", all[0].Receipt.State)
	require.Empty(t, composed(disk{}, nil, nil, []Receipt{{Identity: home, State: "failed"}}), "of nothing there is nothing")
}

func TestSnapshotIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		o := w.observer()
		_, err := o.Next(t.Context(), 0)
		require.NoError(t, err)
		o.publish(disk{}, make([]Connection, MaxConnections+3))
		s := o.Now()
		require.Len(t, s.Connections, MaxConnections)
		require.Equal(t, 3, s.More)
		o.Close()
		require.NoError(t, w.routes.Close(t.Context()))
	})
}

// TestRealStore: the disk of a machine, and one that is not there.
func TestRealStore(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	t.Cleanup(func() {
		root, err := os.OpenRoot(dir)
		require.NoError(t, err)
		require.NoError(t, artifact.Remove(root, "store"))
		require.NoError(t, root.Close())
	})
	store := filepath.Join(dir, "store")
	routes := route.NewRegistry()
	o := New(Config{Store: store, Routes: routes})
	s, err := o.Next(t.Context(), 0)
	require.NoError(t, err)
	require.Empty(t, s.Connections)
	require.Empty(t, s.Problem)

	src := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(src, "connector-manifest.json"), []byte(`{"schemaVersion": "1", "key": "tool",
		"version": "1.0.0", "displayName": "Tool", "cli": {"command": "tool", "kind": "native", "entrypoint": "tool"}}`), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(src, "tool"), []byte("\x7fELF tool"), 0o700))
	i, err := install.Open(install.Config{Dir: store})
	require.NoError(t, err)
	release, err := i.Add(t.Context(), install.Source{Path: src}, nil)
	require.NoError(t, err)
	require.NoError(t, i.Close())

	s, err = o.Refresh(t.Context())
	require.NoError(t, err)
	require.Len(t, s.Connections, 1)
	require.Equal(t, inspect.Present, s.Connections[0].Installed)
	require.Equal(t, release.Digest, s.Connections[0].Digest)

	require.NoError(t, os.Chmod(store, 0o777))
	s, err = o.Refresh(t.Context())
	require.NoError(t, err)
	require.Contains(t, s.Problem, "others may write")
	require.Empty(t, s.Connections)
	require.NoError(t, os.Chmod(store, 0o700))
	o.Close()
	require.NoError(t, routes.Close(t.Context()))
}

// What a reconciliation said of a release that could not be read is over as soon as one
// says more of it.
func TestMendedReleaseHasNoGhost(t *testing.T) {
	t.Parallel()
	id := identity(t, "tool", "default", "a")
	all := id
	all.Connection, all.ReleaseDigest, all.ContractHash = name.ConnectionID{}, "", ""
	d := disk{releases: []inspect.Result{installed(id)}}
	damaged, mended := Receipt{Identity: all, State: "failed", Problem: true}, Receipt{Identity: id, State: "published"}
	now := composed(d, nil, nil, []Receipt{damaged})
	require.Len(t, now, 1)
	require.True(t, now[0].Receipt.Problem)
	now = composed(d, nil, nil, []Receipt{damaged, mended})
	require.Len(t, now, 1)
	require.Equal(t, mended, now[0].Receipt)
	require.Len(t, composed(d, nil, nil, []Receipt{mended, damaged}), 2, "damaged again")
}
