package checkup

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/localhost/artifact"
	"github.com/lendcli/lend/localhost/connection"
	"github.com/lendcli/lend/localhost/install"
	"github.com/lendcli/lend/localhost/intent"
	"github.com/lendcli/lend/localhost/sealed"
	"github.com/lendcli/lend/protocol/name"
)

const toolManifest = `{"schemaVersion": "1", "key": "tool", "version": "1.0.0", "displayName": "Tool",
 "cli": {"command": "tool", "kind": "KIND", "entrypoint": "bin/tool"RUNTIME},
 "secrets": [{"name": "token", "env": "TOOL_TOKEN"}]}`

const canary = "canary-of-a-secret"

// world is a machine with a store and connections.
type world struct {
	t      *testing.T
	places Places
	key    name.ConnectorKey
}

func newWorld(t *testing.T) *world {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o700))
	t.Cleanup(func() {
		root, err := os.OpenRoot(dir)
		require.NoError(t, err)
		require.NoError(t, artifact.Remove(root, "store"))
		require.NoError(t, root.Close())
	})
	k, err := name.ParseConnectorKey("tool")
	require.NoError(t, err)
	return &world{t: t, places: Places{Store: filepath.Join(dir, "store"), Connections: filepath.Join(dir, "connections")}, key: k}
}

func (w *world) add(kind, runtime string) {
	w.t.Helper()
	src := w.t.TempDir()
	m := strings.NewReplacer("KIND", kind, "RUNTIME", runtime).Replace(toolManifest)
	require.NoError(w.t, os.WriteFile(filepath.Join(src, "connector-manifest.json"), []byte(m), 0o600))
	require.NoError(w.t, os.Mkdir(filepath.Join(src, "bin"), 0o700))
	require.NoError(w.t, os.WriteFile(filepath.Join(src, "bin", "tool"), []byte("\x7fELF tool"), 0o700))
	w.store(func(s *install.Store) error {
		_, err := s.Add(w.t.Context(), install.Source{Path: src}, nil)
		return err
	})
}

// head is how an executable of this system begins.
func head(t *testing.T) []byte {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	f, err := os.Open(self)
	require.NoError(t, err)
	b, err := io.ReadAll(io.LimitReader(f, 4096))
	require.NoError(t, errors.Join(err, f.Close()))
	return b
}

func (w *world) store(f func(*install.Store) error) {
	w.t.Helper()
	s, err := install.Open(install.Config{Dir: w.places.Store})
	require.NoError(w.t, err)
	require.NoError(w.t, f(s))
	require.NoError(w.t, s.Close())
}

func (w *world) connection() *connection.Connection {
	w.t.Helper()
	root, err := connection.Open(w.places.Connections)
	require.NoError(w.t, err)
	all, err := root.Ensure(w.key)
	require.NoError(w.t, err)
	return all[0]
}

func (w *world) rows() map[string][]Row {
	w.t.Helper()
	out := map[string][]Row{}
	for _, r := range Run(w.t.Context(), time.Minute, Connectors(w.places)).Rows {
		require.NotContains(w.t, r.Detail+r.Fix+r.Subject, canary)
		out[r.Name] = append(out[r.Name], r)
	}
	return out
}

// alter changes a file of the installed release.
func (w *world) alter(base string) {
	w.t.Helper()
	found := false
	require.NoError(w.t, filepath.WalkDir(w.places.Store, func(p string, d os.DirEntry, err error) error {
		if err == nil && d.Name() == base && !d.IsDir() {
			found = true
			require.NoError(w.t, os.Chmod(p, 0o600))
			require.NoError(w.t, os.WriteFile(p, []byte("\x7fELF evil"), 0o600))
			require.NoError(w.t, os.Chmod(p, 0o500))
		}
		return err
	}))
	require.True(w.t, found)
}

func TestNothingIsInstalledAndNothingIsMade(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	rows := w.rows()
	for _, n := range []string{"route", "runtimes", "secrets-key"} {
		require.Len(t, rows[n], 1)
		require.Equal(t, Skip, rows[n][0].Status, n)
	}
	require.NoDirExists(t, w.places.Store)
	require.NoDirExists(t, w.places.Connections)
	w.store(func(*install.Store) error { return nil })
	require.Equal(t, Skip, w.rows()["route"][0].Status, "an empty store")
	require.Equal(t, Skip, w.rows()["runtimes"][0].Status)
}

func TestRouteReadyMissingDisabledTampered(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.add("native", "")
	require.Equal(t, Pass, w.rows()["route"][0].Status, "before its connection is there")

	c := w.connection()
	row := w.rows()["route"][0]
	require.Equal(t, Row{
		Name: "route", Subject: "tool 1.0.0 default", Status: Warn, Detail: "as installed, but not set: token",
		Fix: "lend connector secret set tool token --connection default",
	}, row)

	root, err := connection.Open(w.places.Connections)
	require.NoError(t, err)
	require.Equal(t, Skip, w.rows()["secrets-key"][0].Status, "no key source yet")
	source, err := sealed.ParseSource("keyfile")
	require.NoError(t, err)
	require.NoError(t, root.Sealed().Create(source))
	token, err := name.ParseLabel("token")
	require.NoError(t, err)
	declared := connection.Declared{Secrets: []connection.Declaration{{Name: "token", Variable: "TOOL_TOKEN"}}}
	require.NoError(t, c.SetSecret(declared, token, "", strings.NewReader(canary)))
	row = w.rows()["route"][0]
	require.Equal(t, Pass, row.Status)
	require.Equal(t, "ready", row.Detail)
	key := w.rows()["secrets-key"][0]
	require.Equal(t, Warn, key.Status, "a key file is weak")
	require.Contains(t, key.Detail, "beside the secrets")

	require.NoError(t, c.SetDisabled(true))
	require.Equal(t, Skip, w.rows()["route"][0].Status)
	require.Equal(t, "lend connector enable tool --connection default", w.rows()["route"][0].Fix)
	require.NoError(t, c.SetDisabled(false))
	want := root.Intent(c.Connector())
	change := func(what func(*intent.Intent)) Row {
		t.Helper()
		require.NoError(t, want.Update(t.Context(), func(i *intent.Intent) error { what(i); return nil }))
		return w.rows()["route"][0]
	}
	require.Equal(t, Row{
		Name: "route", Subject: "tool 1.0.0", Status: Skip, Detail: "disabled by the owner", Fix: "lend connector enable tool",
	}, change(func(i *intent.Intent) { i.Disabled = true }))
	row = change(func(i *intent.Intent) { i.Disabled, i.Removing = false, &intent.Removal{Versions: []string{"1.0.0"}} })
	require.Equal(t, Warn, row.Status)
	require.Equal(t, "lend connector remove tool", row.Fix)
	require.Equal(t, Pass, change(func(i *intent.Intent) { i.Removing = nil }).Status)
	word := filepath.Join(filepath.Dir(filepath.Dir(c.Home())), ".intent.json")
	require.NoError(t, os.WriteFile(word, []byte("{"), 0o600))
	row = w.rows()["route"][0]
	require.Equal(t, Fail, row.Status, "nobody knows what is wanted")
	require.Equal(t, "lend connector disable tool, then lend connector enable tool; or lend connector remove tool", row.Fix)
	require.NoError(t, os.Remove(word))

	w.alter("tool")
	row = w.rows()["route"][0]
	require.Equal(t, Fail, row.Status)
	require.Equal(t, "tool 1.0.0", row.Subject)
	require.Contains(t, row.Detail, "changed")
	require.Equal(t, "lend connector add SOURCE, with what it was added from", row.Fix)
}

func TestRouteWithADamagedManifest(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.add("native", "")
	w.alter("connector-manifest.json")
	row := w.rows()["route"][0]
	require.Equal(t, Fail, row.Status)
	require.Equal(t, "lend connector add SOURCE, with what it was added from", row.Fix)
}

func TestRouteWithoutItsRuntime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	exec := filepath.Join(t.TempDir(), "py")
	require.NoError(t, os.WriteFile(exec, append(head(t), "py"...), 0o700))
	w.store(func(s *install.Store) error {
		_, err := s.AddRuntime(t.Context(), install.RuntimeSource{Name: "py", Version: "3.1.0", Exec: exec}, nil)
		return err
	})
	w.add("script", `, "runtime": {"profile": "py"}`)
	require.Equal(t, Row{Name: "runtimes", Status: Pass, Detail: "py 3.1.0"}, w.rows()["runtimes"][0])
	require.Equal(t, Pass, w.rows()["route"][0].Status)
	root, err := os.OpenRoot(w.places.Store)
	require.NoError(t, err)
	require.NoError(t, artifact.Remove(root, "runtimes/py"))
	require.NoError(t, root.Close())
	row := w.rows()["route"][0]
	require.Equal(t, Fail, row.Status)
	require.Equal(t, "lend runtime add py --version 3.1.0, from what it came from, then lend connector add DIRECTORY again", row.Fix)
	require.Equal(t, Skip, w.rows()["runtimes"][0].Status)
}

// A row is one line: the table of lend doctor has no others.
func TestRowOfSeveralProblems(t *testing.T) {
	t.Parallel()
	require.Equal(t, "one; two", failed(errors.Join(errors.New("one"), errors.New("two")), "").Detail)
}

func TestConnectionsThatOthersCanUse(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.add("native", "")
	w.connection()
	require.NoError(t, os.Chmod(w.places.Connections, 0o777))
	rows := w.rows()
	require.Equal(t, Fail, rows["route"][0].Status)
	require.Equal(t, Fail, rows["secrets-key"][0].Status)
}

func TestNoTimeForARelease(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.add("native", "")
	r := Run(t.Context(), 0, Connectors(w.places))
	require.NotEqual(t, Pass, r.Rows[0].Status)
}

// TestRouteThatIsNoInstallation: an installation that nobody can tell of is a failed
// row, and the others are looked at all the same.
func TestRouteThatIsNoInstallation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.add("native", "")
	other := filepath.Join(w.places.Store, "connectors", "other", "2.0.0")
	require.NoError(t, os.MkdirAll(other, 0o700))
	require.Len(t, w.rows()["route"], 1, "without a receipt nothing is installed")
	require.NoError(t, os.WriteFile(filepath.Join(other, "receipt.json"), []byte("{}"), 0o600))
	rows := w.rows()["route"]
	require.Len(t, rows, 2)
	require.Equal(t, Row{
		Name: "route", Subject: "other 2.0.0", Status: Fail, Detail: rows[0].Detail, Fix: "lend connector add --replace SOURCE, with what it was added from",
	}, rows[0])
	require.Contains(t, rows[0].Detail, "invalid (receipt_invalid): ")
	require.Equal(t, Pass, rows[1].Status)
}
