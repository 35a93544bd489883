package uninstall

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lendcli/lend/localhost/connection"
	"github.com/lendcli/lend/localhost/install"
	"github.com/lendcli/lend/localhost/intent"
	"github.com/lendcli/lend/localhost/sealed"
	"github.com/lendcli/lend/protocol/name"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "remove-and-die" {
		os.Exit(removeAndDie(os.Args[2], os.Args[3], os.Args[4] == "purge"))
	}
	goleak.VerifyTestMain(m)
}

func parsed[T any](t *testing.T, parse func(string) (T, error), s string) T {
	t.Helper()
	v, err := parse(s)
	require.NoError(t, err)
	return v
}

// rig is what is uninstalled from: two releases of the Connector tool, one of other,
// and connections with secrets of both.
type rig struct {
	dir   string
	store *install.Store
	root  *connection.Root
	tool  name.ConnectorKey
	other name.ConnectorKey

	program string // what is installed; it only has to be an executable of this system
}

func openRig(dir string) (*rig, error) {
	r := &rig{dir: dir}
	var err error
	if r.store, err = install.Open(install.Config{Dir: filepath.Join(dir, "store")}); err != nil {
		return nil, err
	}
	if r.root, err = connection.Open(filepath.Join(dir, "connections")); err != nil {
		return nil, err
	}
	if r.tool, err = name.ParseConnectorKey("tool"); err != nil {
		return nil, err
	}
	r.other, err = name.ParseConnectorKey("other")
	return r, err
}

func newRig(t *testing.T) *rig {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	return newRigOf(t, t.TempDir(), self)
}

func newRigOf(t *testing.T, dir, program string) *rig {
	t.Helper()
	r, err := openRig(dir)
	require.NoError(t, err)
	r.program = program
	t.Cleanup(func() { require.NoError(t, r.store.Close()) })
	require.NoError(t, r.root.Sealed().Create(sealed.Source{Kind: sealed.KeyFile}))
	r.add(t, "tool", "1.0.0")
	r.add(t, "tool", "2.0.0")
	r.add(t, "other", "1.0.0")
	for _, key := range []name.ConnectorKey{r.tool, r.other} {
		for _, id := range []string{"default", "work"} {
			c, err := r.root.Create(key, parsed(t, name.ParseConnectionID, id))
			require.NoError(t, err)
			require.NoError(t, c.SetSecret(connection.Declared{}, parsed(t, name.ParseLabel, "token"), "TOOL_TOKEN", strings.NewReader("canary")))
			require.NoError(t, os.WriteFile(filepath.Join(c.Home(), "state"), []byte("kept"), 0o600))
		}
	}
	return r
}

func (r *rig) add(t *testing.T, key, version string) {
	t.Helper()
	source := filepath.Join(r.dir, "source", key+version)
	require.NoError(t, os.MkdirAll(source, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(source, "connector-manifest.json"), []byte(`{
  "schemaVersion": "1", "key": "`+key+`", "version": "`+version+`", "displayName": "Tool",
  "cli": {"command": "tool", "kind": "native", "entrypoint": "tool"}
}`), 0o600))
	b, err := os.ReadFile(r.program)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(source, "tool"), b, 0o700))
	_, err = r.store.Add(t.Context(), install.Source{Path: source}, nil)
	require.NoError(t, err)
}

// versions are what is installed; that can be told.
func (r *rig) versions(t *testing.T, key name.ConnectorKey) []name.Version {
	t.Helper()
	all, err := r.store.Versions(key)
	require.NoError(t, err)
	return all
}

func (r *rig) config() Config { return Config{Store: r.store, Connections: r.root} }

// whole tells whether everything of a Connector is there, and installed as it was.
func (r *rig) whole(t *testing.T, key name.ConnectorKey, versions ...string) bool {
	t.Helper()
	for _, v := range versions {
		if r.store.Verify(t.Context(), key, parsed(t, name.ParseVersion, v)) != nil {
			return false
		}
	}
	return r.accounts(t, key) == "default work"
}

// accounts names the connections that have all that they had.
func (r *rig) accounts(t *testing.T, key name.ConnectorKey) string {
	t.Helper()
	all, err := r.root.List(key)
	require.NoError(t, err)
	var out []string
	for _, c := range all {
		env, err := c.Environment(connection.Declared{}, nil, nil)
		require.NoError(t, err)
		if _, err := os.Stat(filepath.Join(c.Home(), "state")); err == nil && strings.Contains(strings.Join(env, "\n"), "TOOL_TOKEN=canary") {
			out = append(out, c.ID().String())
		}
	}
	return strings.Join(out, " ")
}

func (r *rig) intent(t *testing.T, key name.ConnectorKey) intent.Intent {
	t.Helper()
	i, err := r.root.Intent(key).Read()
	require.NoError(t, err)
	return i
}

// Uninstall: the order, what goes, and what is kept.
func TestUninstall(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	require.NoError(t, r.root.Intent(r.tool).Update(t.Context(), func(i *intent.Intent) error { i.Disabled = true; return nil }))
	c := r.config()
	var order []string
	c.at = func(step string) { order = append(order, step) }
	c.Retire = func(_ context.Context, key name.ConnectorKey) error {
		order = append(order, "retire "+key.String())
		require.True(t, r.intent(t, key).Removes(parsed(t, name.ParseVersion, "1.0.0")), "it is written down before anything ends")
		require.Len(t, r.versions(t, key), 2, "and nothing is gone before what runs has ended")
		return nil
	}
	c.Withdraw = func(_ context.Context, key name.ConnectorKey) error {
		order = append(order, "withdraw "+key.String())
		require.Len(t, r.versions(t, key), 2, "what leads to it goes before it")
		return nil
	}
	require.NoError(t, Remove(t.Context(), c, Request{Connector: r.tool}))
	require.Equal(t, []string{"begin", "written", "retire tool", "retired", "withdraw tool", "withdrawn", "removed 1.0.0", "removed 2.0.0", "forgotten"}, order)
	require.Empty(t, r.versions(t, r.tool))
	require.Equal(t, "default work", r.accounts(t, r.tool), "connections are kept")
	require.True(t, r.intent(t, r.tool).Disabled, "and so is what the owner has decided about it")
	require.Nil(t, r.intent(t, r.tool).Removing)
	require.True(t, r.whole(t, r.other, "1.0.0"))
	left, err := filepath.Glob(filepath.Join(r.dir, "store", "connectors", "tool", "*"))
	require.NoError(t, err)
	require.Empty(t, left)

	require.ErrorIs(t, Remove(t.Context(), c, Request{Connector: r.tool}), install.ErrNotInstalled)
	c.Retire, c.Withdraw, order = nil, nil, nil
	require.NoError(t, Remove(t.Context(), c, Request{Connector: r.tool, Purge: true}))
	require.Equal(t, []string{"begin", "written", "retired", "purged default", "purged work", "forgotten"}, order)
	all, err := r.root.List(r.tool)
	require.NoError(t, err)
	require.Empty(t, all)
	require.False(t, r.intent(t, r.tool).Disabled)
	values, err := filepath.Glob(filepath.Join(r.dir, "connections", "sealed", "values", "tool", "*", "*"))
	require.NoError(t, err)
	require.Empty(t, values, "no secret is left")
	require.NoDirExists(t, filepath.Join(r.dir, "connections", "sealed", "values", "tool"))
	require.NoDirExists(t, filepath.Join(r.dir, "connections", "connectors", "tool"), "nor a lock, nor a directory")
	require.True(t, r.whole(t, r.other, "1.0.0"))
	require.ErrorIs(t, Remove(t.Context(), c, Request{Connector: r.tool, Purge: true}), install.ErrNotInstalled)
}

// A version that an update puts in place while all are removed goes as well: whoever asked
// for all was told that nothing is left.
func TestUninstallDuringAnUpdate(t *testing.T) {
	for _, purge := range []bool{false, true} {
		r := newRig(t)
		c := r.config()
		var once sync.Once
		c.at = func(step string) {
			if step == "retired" {
				once.Do(func() { r.add(t, "tool", "3.0.0") })
			}
		}
		require.NoError(t, Remove(t.Context(), c, Request{Connector: r.tool, Purge: purge}))
		require.Empty(t, r.versions(t, r.tool))
		require.Nil(t, r.intent(t, r.tool).Removing)
		if purge {
			require.Empty(t, r.accounts(t, r.tool))
		}
		require.True(t, r.whole(t, r.other, "1.0.0"))
	}
}

// A link in the place of a whole Connector goes alone: what it leads to stays.
func TestUninstallLink(t *testing.T) {
	r := newRig(t)
	place, away := filepath.Join(r.dir, "store", "connectors", "tool"), filepath.Join(r.dir, "away")
	require.NoError(t, os.Rename(place, away))
	require.NoError(t, os.Symlink(away, place))
	require.Error(t, Remove(t.Context(), r.config(), Request{Connector: r.tool, Version: parsed(t, name.ParseVersion, "1.0.0")}))
	require.FileExists(t, filepath.Join(place, "1.0.0", "receipt.json"))
	require.NoError(t, Remove(t.Context(), r.config(), Request{Connector: r.tool}))
	require.NoFileExists(t, place)
	require.FileExists(t, filepath.Join(away, "1.0.0", "receipt.json"))
	require.FileExists(t, filepath.Join(away, "2.0.0", "receipt.json"))
	require.Equal(t, "default work", r.accounts(t, r.tool))
	require.True(t, r.whole(t, r.other, "1.0.0"))
	require.ErrorIs(t, Remove(t.Context(), r.config(), Request{Connector: r.tool}), install.ErrNotInstalled)
}

func TestUninstallOneVersion(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	one := parsed(t, name.ParseVersion, "1.0.0")
	c := r.config()
	c.Withdraw = func(context.Context, name.ConnectorKey) error { t.Error("another version stays"); return nil }
	require.NoError(t, Remove(t.Context(), c, Request{Connector: r.tool, Version: one}))
	require.Equal(t, []name.Version{parsed(t, name.ParseVersion, "2.0.0")}, r.versions(t, r.tool))
	require.True(t, r.whole(t, r.tool, "2.0.0"))
	require.ErrorIs(t, Remove(t.Context(), r.config(), Request{Connector: r.tool, Version: one}), install.ErrNotInstalled)
	require.ErrorIs(t, Remove(t.Context(), r.config(), Request{Connector: r.tool, Version: parsed(t, name.ParseVersion, "2.0.0"), Purge: true}), ErrVersion)
	require.ErrorIs(t, Remove(t.Context(), r.config(), Request{}), install.ErrNotInstalled)
	unknown := parsed(t, name.ParseConnectorKey, "unknown")
	require.ErrorIs(t, Remove(t.Context(), r.config(), Request{Connector: unknown}), install.ErrNotInstalled)
	require.NoDirExists(t, filepath.Join(r.dir, "connections", "connectors", "unknown"))
}

// While something of it runs, nothing is removed; the removal stands, and goes on.
func TestUninstallThatCannotEndWhatRuns(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	stuck := errors.New("stuck")
	c := r.config()
	c.Retire = func(context.Context, name.ConnectorKey) error { return stuck }
	require.ErrorIs(t, Remove(t.Context(), c, Request{Connector: r.tool}), stuck)
	require.True(t, r.whole(t, r.tool, "1.0.0", "2.0.0"))
	require.NotNil(t, r.intent(t, r.tool).Removing)
	_, err := Resume(t.Context(), c)
	require.ErrorIs(t, err, stuck)
	c.Retire, c.Withdraw = nil, c.Retire
	_, err = Resume(t.Context(), c)
	require.ErrorIs(t, err, stuck)
	require.True(t, r.whole(t, r.tool, "1.0.0", "2.0.0"), "nor while something still leads to it")
	r.add(t, "tool", "3.0.0")

	held, err := r.root.Intent(r.tool).Hold()
	require.NoError(t, err)
	resumed, err := Resume(t.Context(), r.config())
	require.NoError(t, err)
	require.Empty(t, resumed, "a live process is at it")
	require.ErrorIs(t, Remove(t.Context(), r.config(), Request{Connector: r.tool}), intent.ErrHeld)
	require.NoError(t, held.Close())

	resumed, err = Resume(t.Context(), r.config())
	require.NoError(t, err)
	require.Equal(t, []name.ConnectorKey{r.tool}, resumed)
	require.Equal(t, []name.Version{parsed(t, name.ParseVersion, "3.0.0")}, r.versions(t, r.tool), "what came later is not taken along")
	require.Nil(t, r.intent(t, r.tool).Removing)
	resumed, err = Resume(t.Context(), r.config())
	require.NoError(t, err)
	require.Empty(t, resumed)
}

// A word of a removal that cannot be read removes nothing by itself, and keeps nobody
// else. The owner's next removal takes its place; what stays is disabled.
func TestUninstallUnreadable(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	require.NoError(t, os.WriteFile(filepath.Join(r.dir, "connections", "connectors", "tool", ".intent.json"), []byte(`{"schemaVersion":"1","removing":{"versions":["1.0.0"],"all":true}}`), 0o600))
	require.NoError(t, r.root.Intent(r.other).Update(t.Context(), func(i *intent.Intent) error {
		i.Removing = &intent.Removal{Versions: []string{"1.0.0"}}
		return nil
	}))
	resumed, err := Resume(t.Context(), r.config())
	require.NoError(t, err)
	require.Equal(t, []name.ConnectorKey{r.other}, resumed)
	require.True(t, r.whole(t, r.tool, "1.0.0", "2.0.0"))

	damage := func() {
		t.Helper()
		path := filepath.Join(r.dir, "connections", "connectors", "tool", ".intent.json")
		require.NoError(t, os.WriteFile(path, []byte(`{"schemaVersion":"1","rem`), 0o600))
		require.NoError(t, os.Chmod(path, 0o644))
	}
	damage()
	one := parsed(t, name.ParseVersion, "1.0.0")
	require.ErrorIs(t, Remove(t.Context(), r.config(), Request{Connector: r.tool, Version: parsed(t, name.ParseVersion, "9.9.9")}), install.ErrNotInstalled)
	_, err = r.root.Intent(r.tool).Read()
	require.Error(t, err)
	require.NoError(t, Remove(t.Context(), r.config(), Request{Connector: r.tool, Version: one}))
	require.Equal(t, intent.Intent{SchemaVersion: "1", Disabled: true}, r.intent(t, r.tool), "it may have been disabled, or half removed")
	require.True(t, r.whole(t, r.tool, "2.0.0"))
	damage()
	require.NoError(t, Remove(t.Context(), r.config(), Request{Connector: r.tool}))
	require.Empty(t, r.versions(t, r.tool))
	require.True(t, r.intent(t, r.tool).Disabled)
	require.Equal(t, "default work", r.accounts(t, r.tool))
	damage()
	require.NoError(t, Remove(t.Context(), r.config(), Request{Connector: r.tool, Purge: true}))
	require.NoDirExists(t, filepath.Join(r.dir, "connections", "connectors", "tool"))
}

// A purge takes connections along that cannot be opened, and follows no link of them.
func TestPurgeOfWhatIsUnsafe(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	dir, far := filepath.Join(r.dir, "connections", "connectors", "tool"), t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(far, "file"), nil, 0o600))
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "default", "home")))
	require.NoError(t, os.Symlink(far, filepath.Join(dir, "default", "home")))
	require.NoError(t, os.Chmod(filepath.Join(dir, "work"), 0o755))
	require.NoError(t, os.Symlink(far, filepath.Join(dir, "link")))
	_, err := r.root.List(r.tool)
	require.ErrorIs(t, err, connection.ErrUnsafe)
	require.NoError(t, Remove(t.Context(), r.config(), Request{Connector: r.tool, Purge: true}))
	require.NoDirExists(t, dir)
	require.NoDirExists(t, filepath.Join(r.dir, "connections", "sealed", "values", "tool"))
	require.FileExists(t, filepath.Join(far, "file"))
	require.True(t, r.whole(t, r.other, "1.0.0"))

	// Links alone are something to purge, and to be told of; so is one to all of them.
	require.NoError(t, os.Mkdir(dir, 0o700))
	require.NoError(t, os.Symlink(far, filepath.Join(dir, "default")))
	_, err = r.root.Ensure(r.tool)
	require.ErrorIs(t, err, connection.ErrUnsafe)
	require.NoError(t, Remove(t.Context(), r.config(), Request{Connector: r.tool, Purge: true}))
	require.NoDirExists(t, dir)
	require.NoError(t, os.Symlink("other", dir))
	_, err = r.root.Ensure(r.tool)
	require.ErrorIs(t, err, connection.ErrUnsafe)
}

// A purge takes its locks along while others want them: each of them finds a directory
// and locks that are there, and nobody who writes afterwards loses what they wrote.
func TestPurgeUnderOthers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	dir := filepath.Join(r.dir, "connections", "connectors", "tool")
	disable := func() error {
		return r.root.Intent(r.tool).Update(t.Context(), func(i *intent.Intent) error { i.Disabled = true; return nil })
	}
	require.NoError(t, disable())
	require.NoError(t, Remove(t.Context(), r.config(), Request{Connector: r.tool}))
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 50 {
				err := Remove(t.Context(), r.config(), Request{Connector: r.tool, Purge: true})
				if err != nil && !errors.Is(err, install.ErrNotInstalled) && !errors.Is(err, intent.ErrHeld) {
					t.Error(err)
				}
			}
		})
		wg.Go(func() {
			for range 50 {
				if err := disable(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	require.NoError(t, disable())
	require.True(t, r.intent(t, r.tool).Disabled)
	require.NoError(t, Remove(t.Context(), r.config(), Request{Connector: r.tool, Purge: true}), "what is remembered of it is something to remove")
	require.NoDirExists(t, dir)
}

// What a process that was killed has left is removed by the next Resume; what an owner
// has decided about a Connector that is not there stays, and so does what is installed.
func TestResumeSweeps(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	connectors := filepath.Join(r.dir, "connections", "connectors")
	values := filepath.Join(r.dir, "connections", "sealed", "values")
	for _, dir := range []string{filepath.Join(connectors, "gone"), filepath.Join(connectors, "decided"), filepath.Join(values, "gone", "work")} {
		require.NoError(t, os.MkdirAll(dir, 0o700))
	}
	halves := []string{
		filepath.Join(connectors, "gone", ".new-1"), filepath.Join(connectors, "tool", ".new-2"),
		filepath.Join(connectors, "tool", "work", ".new-3"), filepath.Join(values, "tool", "work", ".new-4"),
		filepath.Join(values, "gone", "work", ".new-5"),
	}
	for _, path := range append(halves, filepath.Join(connectors, "gone", ".removal.lock"), filepath.Join(connectors, "gone", ".intent.lock")) {
		require.NoError(t, os.WriteFile(path, nil, 0o600))
	}
	decided := parsed(t, name.ParseConnectorKey, "decided")
	require.NoError(t, r.root.Intent(decided).Update(t.Context(), func(i *intent.Intent) error { i.Disabled = true; return nil }))

	held, err := r.root.Intent(parsed(t, name.ParseConnectorKey, "gone")).Hold()
	require.NoError(t, err)
	resumed, err := Resume(t.Context(), r.config())
	require.NoError(t, err)
	require.Empty(t, resumed)
	for _, path := range halves {
		require.NoFileExists(t, path)
	}
	require.DirExists(t, filepath.Join(connectors, "gone"), "a live process is at it")
	require.NoError(t, held.Close())
	_, err = Resume(t.Context(), r.config())
	require.NoError(t, err)
	require.NoDirExists(t, filepath.Join(connectors, "gone"))
	require.NoDirExists(t, filepath.Join(values, "gone"))
	require.True(t, r.intent(t, decided).Disabled)
	require.True(t, r.whole(t, r.tool, "1.0.0", "2.0.0"))
	require.True(t, r.whole(t, r.other, "1.0.0"))
}
