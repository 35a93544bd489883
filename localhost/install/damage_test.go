package install

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/localhost/install/depot"
	"github.com/lendcli/lend/protocol/name"
)

// plotter is another native Connector than printer.
func plotter(t *testing.T) string {
	t.Helper()
	m := printer("1.0.0")["connector-manifest.json"]
	return printer("1.0.0").with("connector-manifest.json", strings.Replace(m, `"key": "printer"`, `"key": "plotter"`, 1)).dir(t)
}

// damages are ways to harm the printer in a store, each with how it is put right again:
// by adding it once more (true), or by hand.
func damages() map[string]struct {
	do     func(t *testing.T, at string) // the directory of the Connector
	of     string                        // what is damaged then
	mended bool
} {
	type damage = struct {
		do     func(t *testing.T, at string)
		of     string
		mended bool
	}
	one := func(t *testing.T, pattern string) string {
		t.Helper()
		found, err := filepath.Glob(pattern)
		require.NoError(t, err)
		require.Len(t, found, 1)
		return found[0]
	}
	receipt := func(text string) func(*testing.T, string) {
		return func(t *testing.T, at string) {
			t.Helper()
			require.NoError(t, os.WriteFile(filepath.Join(at, "1.0.0", "receipt.json"), []byte(text), 0o600))
		}
	}
	return map[string]damage{
		"receipt-cut-off": {receipt(`{"format": 1, "dir`), "printer 1.0.0", true},
		"receipt-empty":   {receipt(""), "printer 1.0.0", true},
		"receipt-is-a-directory": {func(t *testing.T, at string) {
			t.Helper()
			p := filepath.Join(at, "1.0.0", "receipt.json")
			require.NoError(t, os.Remove(p))
			require.NoError(t, os.MkdirAll(filepath.Join(p, "x"), 0o700))
		}, "printer 1.0.0", true},
		"manifest": {func(t *testing.T, at string) {
			t.Helper()
			p := one(t, filepath.Join(at, "1.0.0", "*", "artifact", "connector-manifest.json"))
			require.NoError(t, os.Chmod(p, 0o600))
			require.NoError(t, os.WriteFile(p, []byte("{"), 0o600))
		}, "printer 1.0.0", true},
		"files-moved": {func(t *testing.T, at string) {
			t.Helper()
			p := filepath.Dir(one(t, filepath.Join(at, "1.0.0", "*", "artifact")))
			require.NoError(t, os.Rename(p, filepath.Join(filepath.Dir(p), "elsewhere")))
		}, "printer 1.0.0", true},
		"version-moved": {func(t *testing.T, at string) {
			t.Helper()
			require.NoError(t, os.Rename(filepath.Join(at, "1.0.0"), filepath.Join(at, "1.0.1")))
		}, "printer 1.0.1", false},
		"connector-moved": {func(t *testing.T, at string) {
			t.Helper()
			require.NoError(t, os.Rename(at, filepath.Join(filepath.Dir(at), "moved")))
		}, "moved 1.0.0", false},
		"version-is-a-link": {func(t *testing.T, at string) {
			t.Helper()
			far := filepath.Join(filepath.Dir(filepath.Dir(at)), "far")
			require.NoError(t, os.Rename(filepath.Join(at, "1.0.0"), far))
			require.NoError(t, os.Symlink(far, filepath.Join(at, "1.0.0")))
		}, "printer 1.0.0", true},
		"connector-is-a-link": {func(t *testing.T, at string) {
			t.Helper()
			require.NoError(t, os.Rename(at, at+".far"))
			require.NoError(t, os.Symlink("printer.far", at))
			require.NoError(t, os.Rename(at+".far", filepath.Join(filepath.Dir(filepath.Dir(at)), "far")))
		}, "printer", false},
	}
}

// treeOf lists everything below a directory.
func treeOf(t *testing.T, dir string) (all []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(dir, func(p string, _ fs.DirEntry, err error) error {
		all = append(all, p)
		return err
	}))
	return all
}

// Isolation: whatever is wrong with one Connector, the other one is listed, starts, is
// updated and removed; the damaged one is named with its reason, starts nothing, keeps
// its files through every sweep, and is mended or removed.
func TestDamageIsOfOneConnector(t *testing.T) {
	t.Parallel()
	for n, c := range damages() {
		t.Run(n, func(t *testing.T) {
			t.Parallel()
			dir := storeDir(t)
			before := openStore(t, Config{Dir: dir})
			bad, good := add(t, before, printer("1.0.0").dir(t)), add(t, before, plotter(t))
			connectors := filepath.Join(dir, "connectors")
			c.do(t, filepath.Join(connectors, "printer"))
			here := treeOf(t, connectors)

			s := openStore(t, Config{Dir: dir}) // sweeps
			_, kept, err := s.Collect(t.Context(), true, nil)
			require.NoError(t, err)
			require.LessOrEqual(t, len(kept), 1)
			require.Equal(t, here, treeOf(t, connectors), "nothing of it is taken away")

			all, damaged, err := s.Releases()
			require.NoError(t, err)
			require.Equal(t, []Release{good}, all)
			require.Len(t, damaged, 1)
			key, version := damaged[0].Of()
			require.Equal(t, c.of, strings.TrimSpace(key.String()+" "+version.String()))
			require.ErrorContains(t, damaged[0], "connector "+c.of+": ")
			require.False(t, damaged[0].Passing())
			_, err = s.Launch(bad)
			require.Error(t, err)
			_, err = s.Release(bad.Manifest.Key, bad.Manifest.Version)
			require.Error(t, err)

			starts(t, s, good)
			_, _, err = s.Update(t.Context(), Replacement{Source: Source{Path: plotter(t)}, Key: good.Manifest.Key}, nil)
			require.NoError(t, err)
			require.NoError(t, s.Remove(t.Context(), good.Manifest.Key, good.Manifest.Version))
			add(t, s, plotter(t))

			if c.mended {
				require.Equal(t, bad, add(t, s, printer("1.0.0").dir(t)))
				starts(t, s, bad)
				require.Len(t, releases(t, s), 2)
				collect(t, s, true)
				return
			}
			if !version.IsZero() {
				require.NoError(t, s.Remove(t.Context(), key, version))
				add(t, s, printer("1.0.0").dir(t))
				require.Len(t, releases(t, s), 2)
			}
		})
	}
}

// What stands in the place of a version and is no directory gives way to it.
func TestAddInThePlaceOfAFile(t *testing.T) {
	t.Parallel()
	s := openStore(t, Config{})
	at := filepath.Join(s.cfg.Dir, "connectors", "printer")
	require.NoError(t, os.MkdirAll(at, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(at, "1.0.0"), nil, 0o600))
	starts(t, s, add(t, s, printer("1.0.0").dir(t)))
}

// A link in the place of a Connector is never followed, least of all to another one.
func TestLinkToAnotherConnector(t *testing.T) {
	t.Parallel()
	s := openStore(t, Config{})
	good := add(t, s, plotter(t))
	at := filepath.Join(s.cfg.Dir, "connectors")
	require.NoError(t, os.Symlink("plotter", filepath.Join(at, "printer")))
	here := treeOf(t, at)
	key, err := name.ParseConnectorKey("printer")
	require.NoError(t, err)
	for _, replace := range []bool{false, true} {
		_, err := s.Add(t.Context(), Source{Path: printer("1.0.0").dir(t), Replace: replace}, nil)
		var damage *Damage
		require.ErrorAs(t, err, &damage)
		require.Equal(t, "printer", damage.Name())
		require.Error(t, s.Remove(t.Context(), key, good.Manifest.Version))
		require.Equal(t, here, treeOf(t, at))
	}
	starts(t, s, good)
}

// A damaged release goes as a whole one does, and its archives with it.
func TestRemoveDamaged(t *testing.T) {
	t.Parallel()
	for n, c := range damages() {
		if !c.mended {
			continue
		}
		t.Run(n, func(t *testing.T) {
			t.Parallel()
			s := openStore(t, Config{})
			r := add(t, s, printer("1.0.0").dir(t))
			c.do(t, filepath.Join(s.cfg.Dir, "connectors", "printer"))
			require.NoError(t, s.Remove(t.Context(), r.Manifest.Key, r.Manifest.Version))
			require.NoDirExists(t, filepath.Join(s.cfg.Dir, "connectors", "printer"))
			require.Empty(t, releases(t, s))
		})
	}
}

// An update takes the place of a damaged release, which nothing can drain from.
func TestUpdateFromDamaged(t *testing.T) {
	t.Parallel()
	for n, c := range damages() {
		if !c.mended {
			continue
		}
		t.Run(n, func(t *testing.T) {
			t.Parallel()
			s := openStore(t, Config{})
			add(t, s, printer("1.0.0").dir(t))
			c.do(t, filepath.Join(s.cfg.Dir, "connectors", "printer"))
			now, from, err := update(t, s, Replacement{Source: Source{Path: printer("1.1.0").dir(t)}})
			require.NoError(t, err)
			require.Equal(t, "1.0.0", from.String())
			require.Equal(t, []string{"1.1.0"}, versions(t, s))
			starts(t, s, now)
		})
	}
	t.Run("to-itself", func(t *testing.T) {
		t.Parallel()
		s := openStore(t, Config{})
		old := add(t, s, printer("1.0.0").dir(t))
		damages()["receipt-cut-off"].do(t, filepath.Join(s.cfg.Dir, "connectors", "printer"))
		now, from, err := update(t, s, Replacement{Source: Source{Path: printer("1.0.0").dir(t)}})
		require.NoError(t, err)
		require.Equal(t, old, now)
		require.True(t, from.IsZero())
	})
}

// Nobody can tell what a Connector runs on whose receipt is damaged: all interpreters
// stay, and that is told. Where only its manifest is, the receipt still tells. Archives
// and orphans of the others are tidied all the same.
func TestCollectBesideDamage(t *testing.T) {
	t.Parallel()
	s := openStore(t, Config{})
	exec := filepath.Join(files{"bin/tool": native(t)}.dir(t), "bin", "tool")
	for _, v := range []string{"3.9.0", "3.11.2"} {
		_, err := s.AddRuntime(t.Context(), RuntimeSource{Name: "python3", Exec: exec, Version: v}, nil)
		require.NoError(t, err)
	}
	r := add(t, s, greeter("").dir(t))
	at := filepath.Join(s.cfg.Dir, "connectors", "greet", "0.1.0")
	found, err := filepath.Glob(filepath.Join(at, "*", "artifact", "connector-manifest.json"))
	require.NoError(t, err)
	require.NoError(t, os.Chmod(found[0], 0o600))
	whole, err := os.ReadFile(found[0])
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(found[0], []byte("{"), 0o600))
	require.Equal(t, []string{"runtime python3 3.9.0"}, collectRuntimes(t, s, false), "its receipt says what it needs")
	require.NoError(t, os.WriteFile(found[0], whole, 0o600))
	require.NoError(t, os.Chmod(found[0], 0o400))

	b, err := os.ReadFile(filepath.Join(at, "receipt.json"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(at, "receipt.json"), b[:20], 0o600))
	downloads := filepath.Join(s.cfg.Dir, "downloads")
	for _, d := range []string{filepath.Join(downloads, "greet", "candidate"), filepath.Join(downloads, "gone", "candidate"), filepath.Join(s.cfg.Dir, "staging", "dead")} {
		require.NoError(t, os.MkdirAll(d, 0o700))
	}
	for _, remove := range []bool{false, true} {
		gone, kept, err := s.CollectRuntimes(t.Context(), remove, nil)
		require.NoError(t, err)
		require.Empty(t, gone)
		require.Len(t, kept, 1)
		require.Equal(t, "greet 0.1.0", kept[0].Name())
		gone, kept, err = s.Collect(t.Context(), remove, nil)
		require.NoError(t, err)
		require.Len(t, kept, 1)
		require.Subset(t, namesOf(gone), []string{"orphan staging/dead", "orphan downloads/gone"}, "the rest is tidied")
		require.NotContains(t, strings.Join(namesOf(gone), "\n"), "greet")
	}
	require.DirExists(t, filepath.Join(downloads, "greet", "candidate"), "it may be made of it")
	require.NoError(t, os.WriteFile(filepath.Join(at, "receipt.json"), b, 0o600))
	starts(t, s, r)

	// Nor can anybody tell what a Connector needs that cannot be listed.
	far := filepath.Join(s.cfg.Dir, "connectors", "far")
	require.NoError(t, os.Symlink("nowhere", far))
	require.NoError(t, os.MkdirAll(filepath.Join(downloads, "far", "candidate"), 0o700))
	_, kept, err := s.Collect(t.Context(), true, nil)
	require.NoError(t, err)
	require.Empty(t, kept, "it has no files")
	require.DirExists(t, filepath.Join(downloads, "far", "candidate"))
	gone, kept, err := s.CollectRuntimes(t.Context(), true, nil)
	require.NoError(t, err)
	require.Empty(t, gone)
	require.Len(t, kept, 1)
	require.NoError(t, os.Remove(far))

	// An interpreter that is damaged is kept, and is told of apart.
	require.NoError(t, os.WriteFile(filepath.Join(s.cfg.Dir, "runtimes", "python3", "3.9.0", "receipt.json"), []byte("{"), 0o600))
	gone, kept, err = s.CollectRuntimes(t.Context(), true, nil)
	require.NoError(t, err)
	require.Empty(t, gone)
	require.Len(t, kept, 1)
	require.Equal(t, depot.Runtimes, kept[0].Kind)
	starts(t, s, r)
}

// What a process that was killed had half written goes with the next sweep.
func TestHalfWrittenReceiptGoes(t *testing.T) {
	t.Parallel()
	dir := storeDir(t)
	s := openStore(t, Config{Dir: dir})
	r := add(t, s, printer("1.0.0").dir(t))
	half := filepath.Join(dir, "connectors", "printer", "1.0.0", ".new-123")
	require.NoError(t, os.WriteFile(half, []byte("{"), 0o600))
	openStore(t, Config{Dir: dir})
	require.NoFileExists(t, half)
	starts(t, s, r)
	require.NoError(t, os.WriteFile(half, []byte("{"), 0o600))
	require.NoError(t, s.Remove(t.Context(), r.Manifest.Key, r.Manifest.Version))
	require.NoDirExists(t, filepath.Join(dir, "connectors", "printer"))
}
