package interpreter

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/lendcli/lend/localhost/install/depot"
	"github.com/lendcli/lend/localhost/install/npm"
	"github.com/stretchr/testify/require"
)

func head(t *testing.T) []byte {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	f, err := os.Open(self)
	require.NoError(t, err)
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, 4096))
	require.NoError(t, err)
	return b
}

func TestFindPython(t *testing.T) {
	t.Parallel()
	program, text := &fstest.MapFile{Data: head(t)}, &fstest.MapFile{Data: []byte("x")}
	for n, c := range map[string]struct {
		tree             fstest.MapFS
		exec, home, want string
	}{
		"root":       {fstest.MapFS{"bin/python3.11": program, "lib/python3.11/os.py": text}, "bin/python3.11", ".", ""},
		"install":    {fstest.MapFS{"python/bin/python3": program, "python/lib/python3.11/os.py": text, "python/x/y/z": text}, "python/bin/python3", "python", ""},
		"deeper":     {fstest.MapFS{"a/usr/bin/python3.11": program, "a/usr/lib/python3.11/os.py": text}, "a/usr/bin/python3.11", "a/usr", ""},
		"windows":    {fstest.MapFS{"python/python.exe": program, "python/Lib/os.py": text}, "python/python.exe", "python", ""},
		"too deep":   {fstest.MapFS{"a/b/c/bin/python3.11": program, "a/b/c/lib/python3.11/os.py": text}, "", "", "it holds no Python 3.11"},
		"no library": {fstest.MapFS{"bin/python3.11": program, "lib/python3.12/os.py": text}, "", "", "the standard library of this version is not there"},
		"script":     {fstest.MapFS{"bin/python3": text, "lib/python3.11/os.py": text}, "", "", "no executable of this system"},
		"directory":  {fstest.MapFS{"bin/python3.11/x": text, "lib/python3.11/os.py": text}, "", "", "it holds no Python 3.11"},
		"other":      {fstest.MapFS{"bin/python3.12": program, "lib/python3.12/os.py": text}, "", "", "it holds no Python 3.11"},
		"nothing":    {fstest.MapFS{}, "", "", "it holds no Python 3.11"},
	} {
		exec, home, err := findPython(c.tree, "3.11.2")
		if c.want != "" {
			require.ErrorContains(t, err, c.want, n)
			continue
		}
		require.NoError(t, err, n)
		require.Equal(t, []string{c.exec, c.home}, []string{exec, home}, n)
		require.True(t, fs.ValidPath(exec))
	}
}

type runner func(npm.Command) ([]byte, error)

func (r runner) Run(_ context.Context, c npm.Command) ([]byte, error) { return r(c) }

func TestAsk(t *testing.T) {
	t.Parallel()
	tree, scratch := t.TempDir(), t.TempDir()
	home := filepath.Join(tree, "python")
	rt := depot.Runtime{Name: "python3", Version: "3.11.2", Exec: "python/bin/python3.11", Home: "python"}
	no := errors.New("exit status 1")
	for out, want := range map[string]string{
		"3.11.2\n" + home + "\n" + home + "/lib/python3.11/os.py\n": "",
		"3.11.4\n" + home + "\n" + home + "/lib/python3.11/os.py\n": `version "3.11.4", not 3.11.2`,
		"3.11.2\n/usr\n/usr/lib/python3.11/os.py\n":                 "not its own",
		"3.11.2\n" + home + "\n" + home + "x/os.py\n":               "not its own",
		"3.11.2": "version", "": "version",
	} {
		err := Ask(t.Context(), runner(func(c npm.Command) ([]byte, error) {
			require.Equal(t, filepath.Join(tree, "python", "bin", "python3.11"), c.Path)
			require.Contains(t, c.Env, "PYTHONHOME="+home)
			return []byte(filepath.FromSlash(out)), nil
		}), rt, tree, scratch)
		if want == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, want)
	}
	require.ErrorIs(t, Ask(t.Context(), runner(func(npm.Command) ([]byte, error) { return []byte("\x1b"), no }), rt, tree, scratch), no)
	require.ErrorContains(t, Ask(t.Context(), nil, rt, tree, scratch), "no runner")
	rt.Home = ""
	require.NoError(t, Ask(t.Context(), nil, rt, tree, scratch), "one without a library is not asked")
}

func TestABIAndEnv(t *testing.T) {
	t.Parallel()
	py := depot.Runtime{Name: "python3", Version: "3.11.2", Target: "linux-x64", Home: "python"}
	node := depot.Runtime{Name: "node", Version: "22.23.5", Target: "linux-x64"}
	require.Equal(t, "python3-linux-x64", ABI(py))
	require.Equal(t, "node22-linux-x64", ABI(node))
	require.Equal(t, []string{"NODE_DISABLE_COMPILE_CACHE=1"}, Env(node, "/t"))
	require.Contains(t, Env(py, "/t"), "PYTHONHOME="+filepath.Join("/t", "python"))
	py.Home = ""
	require.Equal(t, []string{"PYTHONDONTWRITEBYTECODE=1", "PYTHONNOUSERSITE=1"}, Env(py, "/t"))
	require.Empty(t, Env(depot.Runtime{Name: "dash"}, "/t"))
}
