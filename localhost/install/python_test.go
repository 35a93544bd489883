package install

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lendcli/lend/localhost/install/npm"
	"github.com/lendcli/lend/localhost/process"
	"github.com/stretchr/testify/require"
)

// fakePython answers what an interpreter is asked when it is added.
type fakePython struct {
	version string
	touch   bool // change a file of the tree meanwhile
}

func (f fakePython) Run(_ context.Context, c npm.Command) ([]byte, error) {
	home := ""
	for _, e := range c.Env {
		if v, ok := strings.CutPrefix(e, "PYTHONHOME="); ok {
			home = v
		}
	}
	at := filepath.Join(home, "lib", "python3.11", "os.py")
	if f.touch {
		if err := os.Chmod(at, 0o600); err != nil {
			return nil, err
		}
	}
	return []byte(f.version + "\n" + home + "\n" + at + "\n"), nil
}

func hexSum(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// pythonSource is a small archive of the shape of a real one.
func pythonSource(t *testing.T) RuntimeSource {
	t.Helper()
	b := files{"bin/python3.11": native(t), "lib/python3.11/os.py": "x", "lib/python3.11/json/__init__.py": "y"}.tgz(t, "python/")
	at := filepath.Join(t.TempDir(), "python.tar.gz")
	require.NoError(t, os.WriteFile(at, b, 0o600))
	return RuntimeSource{Name: "python3", Version: "3.11.2", Archive: at, SHA256: hexSum(b)}
}

func TestAddPythonArchive(t *testing.T) {
	t.Parallel()
	s := openStore(t, Config{Runner: fakePython{version: "3.11.2"}})
	src := pythonSource(t)
	rt, err := s.AddRuntime(t.Context(), src, nil)
	require.NoError(t, err)
	require.True(t, strings.HasSuffix(filepath.ToSlash(rt.Path), "/tree/python/bin/python3.11"))
	require.True(t, strings.HasPrefix(rt.ABI, "python3-"))
	again, err := s.AddRuntime(t.Context(), src, nil)
	require.NoError(t, err)
	require.Equal(t, rt, again)
	r := add(t, s, greeter(`, "range": ">=3.11.0 <4.0.0", "abi": "`+rt.ABI+`"`).dir(t))
	require.Equal(t, "python3@3.11.2", r.Runtime)
	l, err := s.Launch(r)
	require.NoError(t, err)
	defer l.Close()
	home := filepath.Dir(filepath.Dir(rt.Path))
	require.Equal(t, rt.Path, l.Path)
	require.Equal(t, []string{"PYTHONHOME=" + home, "PYTHONDONTWRITEBYTECODE=1", "PYTHONNOUSERSITE=1"}, l.Env)
	require.NoError(t, l.Verify())
	flip(t, filepath.Join(home, "lib", "python3.11", "json", "__init__.py"), 0)
	require.ErrorIs(t, l.Verify(), ErrTampered, "the standard library is part of what is verified")
	for _, bad := range []string{`, "abi": "python2-linux-x64"`, `, "abi": "python3-plan9-x64"`, `, "range": ">=3.12.0"`} {
		_, err = s.Add(t.Context(), Source{Path: greeter(bad).dir(t), Replace: true}, nil)
		require.ErrorIs(t, err, ErrNoRuntime, bad)
	}
}

func TestAddPythonArchiveRefuses(t *testing.T) {
	t.Parallel()
	for n, c := range map[string]struct {
		edit func(*RuntimeSource)
		run  Runner
		want string
	}{
		"digest":       {func(q *RuntimeSource) { q.SHA256 = strings.Repeat("ab", 32) }, nil, "which is not the one given"},
		"no digest":    {func(q *RuntimeSource) { q.SHA256 = "" }, nil, "give the SHA-256"},
		"upper case":   {func(q *RuntimeSource) { q.SHA256 = strings.ToUpper(q.SHA256) }, nil, "lower-case"},
		"no version":   {func(q *RuntimeSource) { q.Version = "" }, nil, "give the version"},
		"short":        {func(q *RuntimeSource) { q.Version = "3.11" }, nil, "give the version"},
		"name":         {func(q *RuntimeSource) { q.Name = "ruby" }, nil, `"python" or "python3" alone`},
		"node":         {func(q *RuntimeSource) { q.Name = "node" }, nil, "never used"},
		"both":         {func(q *RuntimeSource) { q.Exec = "/bin/x" }, nil, "not both"},
		"relative":     {func(q *RuntimeSource) { q.Archive = "x.tar.gz" }, nil, "absolute"},
		"minor":        {func(q *RuntimeSource) { q.Version = "3.12.0" }, nil, "it holds no Python 3.12"},
		"no runner":    {func(*RuntimeSource) {}, nil, "no runner"},
		"says another": {func(*RuntimeSource) {}, fakePython{version: "3.11.4"}, `"3.11.4", not 3.11.2`},
		"changes":      {func(*RuntimeSource) {}, fakePython{version: "3.11.2", touch: true}, "snapshot changed"},
	} {
		t.Run(n, func(t *testing.T) {
			t.Parallel()
			s := openStore(t, Config{Runner: c.run})
			src := pythonSource(t)
			c.edit(&src)
			_, err := s.AddRuntime(t.Context(), src, nil)
			require.ErrorContains(t, err, c.want)
			all, err := s.Runtimes()
			require.NoError(t, err)
			require.Empty(t, all)
			require.Empty(t, staged(t, s))
		})
	}
}

// packPython packs this system's Python as an archive of one is: below one directory,
// with its links.
func packPython(t *testing.T, exec, lib, to string) []byte {
	t.Helper()
	f, err := os.Create(to)
	require.NoError(t, err)
	g, err := gzip.NewWriterLevel(f, gzip.BestSpeed)
	require.NoError(t, err)
	w := tar.NewWriter(g)
	put := func(at, as string, info fs.FileInfo) {
		target := ""
		if info.Mode()&fs.ModeSymlink != 0 {
			var err error
			target, err = os.Readlink(at)
			require.NoError(t, err)
		}
		h, err := tar.FileInfoHeader(info, target)
		require.NoError(t, err)
		h.Name = as
		require.NoError(t, w.WriteHeader(h))
		if info.Mode().IsRegular() {
			b, err := os.ReadFile(at)
			require.NoError(t, err)
			_, err = w.Write(b)
			require.NoError(t, err)
		}
	}
	info, err := os.Stat(exec)
	require.NoError(t, err)
	put(exec, "python/bin/"+filepath.Base(exec), info)
	require.NoError(t, filepath.Walk(lib, func(p string, info fs.FileInfo, err error) error {
		if err != nil || info.IsDir() && info.Name() == "__pycache__" {
			return filepath.SkipDir
		}
		rel, err := filepath.Rel(lib, p)
		require.NoError(t, err)
		put(p, path.Join("python/lib", filepath.Base(lib), filepath.ToSlash(rel)), info)
		return nil
	}))
	require.NoError(t, w.Close())
	require.NoError(t, g.Close())
	require.NoError(t, f.Close())
	b, err := os.ReadFile(to)
	require.NoError(t, err)
	return b
}

// TestRealPython: this system's Python, packed, is an interpreter whose library is
// its own, for a script that uses some of it.
func TestRealPython(t *testing.T) {
	t.Parallel()
	if os.Getenv("LEND_TEST_FULL") != "1" {
		t.Skip("needs LEND_TEST_FULL=1: it packs the system's Python")
	}
	exec, err := filepath.EvalSymlinks("/usr/bin/python3")
	require.NoError(t, err)
	p := transport(t)
	got, err := p.Run(t.Context(), process.Spec{Path: exec, Args: []string{exec, "-c", "import sys; print('%d.%d.%d' % sys.version_info[:3])"}, Dir: "/"}, 100)
	require.NoError(t, err)
	v := strings.TrimSpace(string(got.Stdout))
	src := RuntimeSource{Name: "python3", Version: v, Archive: filepath.Join(t.TempDir(), "python.tar.gz")}
	src.SHA256 = hexSum(packPython(t, exec, "/usr/lib/"+filepath.Base(exec), src.Archive))
	s := openStore(t, Config{Runner: NewRunner(p)})
	rt, err := s.AddRuntime(t.Context(), src, nil)
	require.NoError(t, err)

	script := "import helper, json, os, sys, hashlib, ctypes, sqlite3\nprint(json.dumps([helper.x, os.__file__, json.__file__, sys.prefix, sys.argv[1:]]))\n"
	r := add(t, s, greeter(`, "abi": "`+rt.ABI+`"`).with("greet.py", script).with("helper.py", "x = 7\n").dir(t))
	l, err := s.Launch(r)
	require.NoError(t, err)
	defer l.Close()
	home := filepath.Dir(filepath.Dir(rt.Path))
	got, err = p.Run(t.Context(), process.Spec{Path: l.Path, Args: []string{l.Path, l.Prefix[0], "a b"}, Env: l.Env, Dir: t.TempDir()}, 10_000)
	require.NoError(t, err)
	require.Zero(t, got.Exit.Code, "%s", got.Stderr)
	require.JSONEq(t, `[7, "`+home+`/lib/`+filepath.Base(exec)+`/os.py", "`+home+`/lib/`+filepath.Base(exec)+`/json/__init__.py", "`+home+`", ["a b"]]`, string(got.Stdout))
	require.NoError(t, l.Verify(), "running leaves no trace in what is verified")

	src.Version = "3.1.2"
	_, err = s.AddRuntime(t.Context(), src, nil)
	require.ErrorContains(t, err, "it holds no Python 3.1")
}
