package install

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/lendcli/lend/localhost/install/npm"
	"github.com/lendcli/lend/protocol/name"
	"github.com/stretchr/testify/require"
)

func namesOf(found []Garbage) []string {
	out := []string{}
	for _, g := range found {
		out = append(out, g.Kind+" "+g.Name)
	}
	return out
}

func collectRuntimes(t *testing.T, s *Store, remove bool) []string {
	t.Helper()
	found, kept, err := s.CollectRuntimes(t.Context(), remove, nil)
	require.NoError(t, err)
	require.Empty(t, kept)
	return namesOf(found)
}

// collect finds what nothing needs; nothing is damaged.
func collect(t *testing.T, s *Store, remove bool) []Garbage {
	t.Helper()
	found, kept, err := s.Collect(t.Context(), remove, nil)
	require.NoError(t, err)
	require.Empty(t, kept)
	return found
}

func TestCollectRuntimes(t *testing.T) {
	t.Parallel()
	s := openStore(t, Config{})
	exec := filepath.Join(files{"bin/tool": native(t)}.dir(t), "bin", "tool")
	for _, v := range []string{"3.9.0", "3.11.2", "3.12.0"} {
		_, err := s.AddRuntime(t.Context(), RuntimeSource{Name: "python3", Exec: exec, Version: v}, nil)
		require.NoError(t, err)
	}
	_, err := s.AddRuntime(t.Context(), RuntimeSource{Name: "dash", Version: "0.0.0", Exec: exec}, nil)
	require.NoError(t, err)
	r := add(t, s, greeter(`, "range": "<3.12.0"`).dir(t))
	require.Equal(t, "python3@3.11.2", r.Runtime)

	want := []string{"runtime dash 0.0.0", "runtime python3 3.12.0", "runtime python3 3.9.0"}
	require.Equal(t, want, collectRuntimes(t, s, false))
	require.Equal(t, want, collectRuntimes(t, s, false), "a dry run changes nothing")
	require.Equal(t, want, collectRuntimes(t, s, true))
	require.Empty(t, collectRuntimes(t, s, true))
	l, err := s.Launch(r)
	require.NoError(t, err, "what a release runs on stays")
	all, err := s.Runtimes()
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.NoDirExists(t, filepath.Join(s.cfg.Dir, "runtimes", "dash"))

	// A removed release that still runs, here or in another process, keeps it.
	require.NoError(t, s.Remove(t.Context(), key(t, "greet"), name.Version{}))
	other := openStore(t, Config{Dir: s.cfg.Dir})
	require.Empty(t, collectRuntimes(t, other, true))
	require.NoError(t, l.Verify())
	require.NoError(t, l.Close())
	require.Equal(t, []string{"runtime python3 3.11.2"}, collectRuntimes(t, other, true))
}

// npm and the node that it runs on stay while something came from it; a release that
// cannot be read keeps everything.
func TestCollectRuntimesKeepsWhatRepairs(t *testing.T) {
	t.Parallel()
	s, f := npmStore(t)
	f.tree["node_modules/hello/cli.js"] = native(t)
	r := add(t, s, hello().dir(t))
	require.Empty(t, r.Runtime)
	require.Empty(t, collectRuntimes(t, s, true))
	receipt := filepath.Join(s.cfg.Dir, "connectors", "hello", "1.0.0", "receipt.json")
	b, err := os.ReadFile(receipt)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(receipt, []byte("{}"), 0o600))
	found, kept, err := s.CollectRuntimes(t.Context(), true, nil)
	require.NoError(t, err)
	require.Len(t, kept, 1)
	require.ErrorContains(t, kept[0], "connector hello 1.0.0")
	require.Empty(t, found)
	require.NoError(t, os.WriteFile(receipt, b, 0o600))
	require.NoError(t, s.Remove(t.Context(), key(t, "hello"), name.Version{}))
	require.Equal(t, []string{"runtime node 22.1.0", "runtime npm 11.0.0"}, collectRuntimes(t, s, true))
}

// While a Connector is being added, its interpreter stays, though no receipt names it.
func TestCollectRuntimesDuringAdd(t *testing.T) {
	t.Parallel()
	s, f := npmStore(t)
	tree := f.tree
	during := &duringInstall{fakeNPM: f, do: func() {
		require.Empty(t, collectRuntimes(t, openStore(t, Config{Dir: s.cfg.Dir}), true))
		found := collect(t, s, true)
		require.Empty(t, found, "nor is the cache taken away from a running npm")
	}}
	require.NoError(t, os.WriteFile(filepath.Join(s.cfg.Dir, "cache", "x"), []byte("xyz"), 0o600))
	s.cfg.Runner = during
	f.tree = tree
	r := add(t, s, hello().dir(t))
	require.Equal(t, "node@22.1.0", r.Runtime)
	found := collect(t, s, false)
	require.Equal(t, []Garbage{{"cache", "cache", 3}}, found)
}

type duringInstall struct {
	*fakeNPM
	do func()
}

func (d *duringInstall) Run(ctx context.Context, c npm.Command) ([]byte, error) {
	d.do()
	return d.fakeNPM.Run(ctx, c)
}

func TestCollect(t *testing.T) {
	t.Parallel()
	dir := storeDir(t)
	s := openStore(t, Config{Dir: dir})
	r := add(t, s, printer("1.0.0").dir(t))
	l, err := s.Launch(r)
	require.NoError(t, err)
	require.NoError(t, s.Remove(t.Context(), key(t, "printer"), name.Version{}))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "staging", "dead"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "staging", "dead", "f"), []byte("12345"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "cache", "x"), []byte("xyz"), 0o600))

	asIs := openStore(t, Config{Dir: dir, AsIs: true})
	for _, remove := range []bool{false, true} {
		found := collect(t, asIs, remove)
		require.Equal(t, []Garbage{{"orphan", "staging/dead", 5}, {"cache", "cache", 3}}, found, "what runs is left")
	}
	require.NoError(t, l.Verify())
	require.NoError(t, l.Close())
	found := collect(t, asIs, true)
	require.Len(t, found, 1)
	require.Equal(t, "orphan", found[0].Kind)
	require.Contains(t, found[0].Name, "connectors/printer/1.0.0/")
	require.NoDirExists(t, filepath.Join(dir, "connectors", "printer"))
	require.DirExists(t, filepath.Join(dir, "cache"))
	found = collect(t, asIs, true)
	require.Empty(t, found)
	require.Empty(t, staged(t, asIs))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err = asIs.Collect(ctx, true, nil)
	require.ErrorIs(t, err, context.Canceled)
}

// Between the choice of an interpreter and the receipt that names it nothing takes it
// away, though npm, which would hold it too, does not run.
func TestEquipHoldsTheRuntime(t *testing.T) {
	t.Parallel()
	s := openStore(t, Config{})
	exec := filepath.Join(files{"bin/tool": native(t)}.dir(t), "bin", "tool")
	_, err := s.AddRuntime(t.Context(), RuntimeSource{Name: "python3", Exec: exec, Version: "3.11.2"}, nil)
	require.NoError(t, err)
	in, err := s.bring(t.Context(), Source{Path: greeter("").dir(t)}, nil)
	require.NoError(t, err)
	defer in.Drop()
	release, err := s.equip(t.Context(), in, nil)
	require.NoError(t, err)
	require.Empty(t, collectRuntimes(t, s, true))
	release()
	require.Equal(t, []string{"runtime python3 3.11.2"}, collectRuntimes(t, s, true))
}
