package install

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lendcli/lend/localhost/install/interpreter"
	"github.com/lendcli/lend/localhost/install/npm"
	"github.com/stretchr/testify/require"
)

func TestAddManagedRuntime(t *testing.T) {
	t.Parallel()
	base, node, _ := registry(t)
	s := openStore(t, Config{Registry: base})
	rt, err := s.AddRuntime(t.Context(), node, nil)
	require.NoError(t, err)
	require.Equal(t, "22.1.0", rt.Version)
	require.Equal(t, interpreter.Target(), rt.Target)
	entries, err := os.ReadDir(filepath.Dir(filepath.Dir(rt.Path)))
	require.NoError(t, err)
	require.Len(t, entries, 3, "only what runs and its licence is kept")
	again, err := s.AddRuntime(t.Context(), node, nil)
	require.NoError(t, err)
	require.Equal(t, rt, again)
	all, err := s.Runtimes()
	require.NoError(t, err)
	require.Equal(t, []Runtime{rt}, all)

	flip(t, rt.Path, 3)
	mended, err := s.AddRuntime(t.Context(), node, nil)
	require.NoError(t, err)
	require.Equal(t, rt.Digest, mended.Digest)
	require.NotEqual(t, rt.Path, mended.Path)
	b, err := os.ReadFile(mended.Path)
	require.NoError(t, err)
	require.Equal(t, binary+" node", string(b))
}

func TestAddRuntimeFromFile(t *testing.T) {
	t.Parallel()
	_, node, _ := registry(t)
	_, _, exec, _ := interpreter.Tried("node")
	b := files{exec: binary + " node", "LICENSE": "free", "package.json": "{}", "include/x.h": "left out"}.tgz(t, "package/")
	node.File = filepath.Join(t.TempDir(), "node.tgz")
	require.NoError(t, os.WriteFile(node.File, b, 0o600))
	s := openStore(t, Config{})
	_, err := s.AddRuntime(t.Context(), node, nil)
	require.NoError(t, err, "no registry is needed")
	require.NoError(t, os.WriteFile(node.File, append(b, 0), 0o600))
	_, err = s.AddRuntime(t.Context(), node, nil)
	require.ErrorIs(t, err, npm.ErrIntegrity)
	require.Empty(t, staged(t, s))
}

func TestAddRuntimeRefuses(t *testing.T) {
	t.Parallel()
	base, node, _ := registry(t)
	s := openStore(t, Config{Registry: base})
	exec := filepath.Join(files{
		"bin/tool": native(t), "bin/script": "#!/bin/dash\n", "bin/text": "a host name of a machine\n", "bin/empty": "",
		"bin/other": "\x7fELF\x02\x01\x01" + strings.Repeat("\x00", 9) + "\x02\x00\x16\x00" + strings.Repeat("\x00", 64),
	}.dir(t), "bin")
	for n, c := range map[string]struct {
		src  RuntimeSource
		want string
	}{
		"name":              {RuntimeSource{Name: "../x", Exec: exec + "/tool"}, "want a name"},
		"no-exec":           {RuntimeSource{Name: "python3"}, "--exec PATH"},
		"relative":          {RuntimeSource{Name: "python3", Exec: "tool"}, "absolute"},
		"version":           {RuntimeSource{Name: "python3", Exec: exec + "/tool", Version: "3.11"}, "want a version"},
		"script":            {RuntimeSource{Name: "python3", Version: "1.0.0", Exec: exec + "/script"}, "script"},
		"no-version":        {RuntimeSource{Name: "python3", Exec: exec + "/tool"}, "--version X.Y.Z"},
		"text":              {RuntimeSource{Name: "foo", Version: "1.0.0", Exec: exec + "/text"}, "it is no executable"},
		"empty":             {RuntimeSource{Name: "foo", Version: "1.0.0", Exec: exec + "/empty"}, "it is no executable"},
		"other-system":      {RuntimeSource{Name: "foo", Version: "1.0.0", Exec: exec + "/other"}, "an executable of another system (elf for another processor)"},
		"absent":            {RuntimeSource{Name: "python3", Version: "1.0.0", Exec: exec + "/absent"}, "no such file"},
		"system-node":       {RuntimeSource{Name: "node", Exec: exec + "/tool"}, "an executable of this system is never used"},
		"system-npm":        {RuntimeSource{Name: "npm", Exec: exec + "/tool"}, "never used"},
		"unknown-integrity": {RuntimeSource{Name: "node", Version: "22.1.0"}, "give the integrity"},
		"bad-integrity":     {RuntimeSource{Name: "node", Version: "22.1.0", Integrity: "sha1-x"}, "invalid integrity"},
		"other-integrity":   {RuntimeSource{Name: "node", Version: "22.1.0", Integrity: integrity(nil)}, "integrity mismatch"},
		"not-served":        {RuntimeSource{Name: "node", Version: "22.2.0", Integrity: node.Integrity}, "answers 404"},
		"inexact-version":   {RuntimeSource{Name: "node", Version: "22", Integrity: node.Integrity}, "one exact version"},
		"relative-file":     {RuntimeSource{Name: "node", Version: "22.1.0", Integrity: node.Integrity, File: "x.tgz"}, "absolute"},
	} {
		t.Run(n, func(t *testing.T) {
			_, err := s.AddRuntime(t.Context(), c.src, nil)
			require.ErrorContains(t, err, c.want)
			require.Empty(t, staged(t, s))
		})
	}
	_, err := openStore(t, Config{}).AddRuntime(t.Context(), node, nil)
	require.ErrorIs(t, err, ErrNoRegistry)
	_, err = openStore(t, Config{}).AddNode(t.Context(), nil)
	require.ErrorIs(t, err, ErrNoRegistry)
}

func TestChooseRuntimeTakesTheNewest(t *testing.T) {
	t.Parallel()
	s := openStore(t, Config{})
	exec := filepath.Join(files{"bin/tool": native(t)}.dir(t), "bin", "tool")
	for _, v := range []string{"3.9.0", "3.11.2", "3.10.0", "4.0.0-rc.1", "4.0.0"} {
		_, err := s.AddRuntime(t.Context(), RuntimeSource{Name: "python3", Exec: exec, Version: v}, nil)
		require.NoError(t, err)
	}
	_, err := s.AddRuntime(t.Context(), RuntimeSource{Name: "dash", Version: "0.0.0", Exec: exec}, nil)
	require.NoError(t, err)
	all, err := s.Runtimes()
	require.NoError(t, err)
	var got []string
	for _, r := range all {
		got = append(got, r.Name+" "+r.Version)
	}
	require.Equal(t, []string{"dash 0.0.0", "python3 4.0.0", "python3 4.0.0-rc.1", "python3 3.11.2", "python3 3.10.0", "python3 3.9.0"}, got)
	require.Equal(t, "python3@3.11.2", add(t, s, greeter(`, "range": ">=3.0.0 <4.0.0"`).dir(t)).Runtime)
}

// Managed runtime resolver: the executable that was verified is the one that runs. One
// that was replaced is found before the start, and the system's own is never used.
func TestManagedRuntimeResolverRunsWhatWasVerified(t *testing.T) {
	s := openStore(t, Config{})
	system := filepath.Join(files{"bin/python3": native(t)}.dir(t), "bin")
	t.Setenv("PATH", system) // there is one
	_, err := s.Add(t.Context(), Source{Path: greeter("").dir(t)}, nil)
	require.ErrorIs(t, err, ErrNoRuntime)
	rt, err := s.AddRuntime(t.Context(), RuntimeSource{Name: "python3", Exec: filepath.Join(system, "python3"), Version: "3.11.2"}, nil)
	require.NoError(t, err)
	r := add(t, s, greeter("").dir(t))
	l, err := s.Launch(r)
	require.NoError(t, err)
	require.Equal(t, rt.Path, l.Path)
	require.False(t, strings.HasPrefix(l.Path, system))
	require.NoError(t, l.Verify())

	require.NoError(t, os.Chmod(filepath.Dir(rt.Path), 0o700))
	require.NoError(t, os.Rename(rt.Path, rt.Path+".was"))
	require.NoError(t, os.WriteFile(rt.Path, []byte(native(t)), 0o500)) // the same bytes in another file are not enough, beside what was there
	require.ErrorIs(t, l.Verify(), ErrTampered)
	require.NoError(t, os.Remove(rt.Path+".was"))
	require.NoError(t, os.Chmod(rt.Path, 0o700))
	require.NoError(t, os.WriteFile(rt.Path, []byte(native(t)+" and more"), 0o700))
	require.NoError(t, os.Chmod(rt.Path, 0o500))
	require.NoError(t, os.Chmod(filepath.Dir(rt.Path), 0o500))
	require.ErrorIs(t, l.Verify(), ErrTampered)
	_, err = s.Launch(r)
	require.ErrorIs(t, err, ErrTampered)
	require.NoError(t, l.Close())
	require.NoError(t, os.Chmod(filepath.Dir(rt.Path), 0o700))
	require.NoError(t, os.Remove(rt.Path))
	require.NoError(t, os.Chmod(filepath.Dir(rt.Path), 0o500))
	_, err = s.Launch(r)
	require.Error(t, err, "not there, and the system's is not taken for it")
}

// Runtime ABI check: another ABI, profile or range is refused when a release is added,
// and another interpreter than that one when it is prepared for a route.
func TestRuntimeABICheckIsExact(t *testing.T) {
	t.Parallel()
	s := openStore(t, Config{})
	exec := filepath.Join(files{"bin/tool": native(t)}.dir(t), "bin", "tool")
	runtime := func(name, version, more string) Runtime {
		at := exec + more
		require.NoError(t, os.WriteFile(at, []byte(native(t)+more), 0o700))
		rt, err := s.AddRuntime(t.Context(), RuntimeSource{Name: name, Exec: at, Version: version}, nil)
		require.NoError(t, err)
		return rt
	}
	rt := runtime("python3", "3.11.2", "")
	runtime("python", "2.7.18", "")
	for n, want := range map[string]string{
		"abi":           `"profile": "python3", "abi": "python4-` + rt.Target + `"`,
		"abi of target": `"profile": "python3", "abi": "python3-plan9-x64"`,
		"profile":       `"profile": "pypy"`,
		"range":         `"profile": "python3", "range": ">=3.12.0"`,
		"upper range":   `"profile": "python3", "range": "<3.11.2"`,
	} {
		f := greeter("")
		f["connector-manifest.json"] = strings.Replace(f["connector-manifest.json"], `"profile": "python3"`, want, 1)
		_, err := s.Add(t.Context(), Source{Path: f.dir(t)}, nil)
		require.ErrorIs(t, err, ErrNoRuntime, n)
	}
	r := add(t, s, greeter(`, "range": ">=3.11.0 <3.12.0", "abi": "`+rt.ABI+`"`).dir(t))
	l, err := s.Launch(r)
	require.NoError(t, err)
	require.NoError(t, l.Close())
	runtime("python3", "3.11.9", " newer") // which fits, and is another
	l, err = s.Launch(r)
	require.NoError(t, err)
	require.Equal(t, rt.Path, l.Path, "the one that it was added with")
	require.NoError(t, l.Close())
	runtime("python3", "3.11.2", " of other bytes")
	_, err = s.Launch(r)
	require.ErrorIs(t, err, ErrNoRuntime)
}
