package install

import (
	"os"
	"path/filepath"
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
	exec := filepath.Join(files{"bin/tool": binary, "bin/script": "#!/bin/dash\n"}.dir(t), "bin")
	for n, c := range map[string]struct {
		src  RuntimeSource
		want string
	}{
		"name":              {RuntimeSource{Name: "../x", Exec: exec + "/tool"}, "want a name"},
		"no-exec":           {RuntimeSource{Name: "python3"}, "--exec PATH"},
		"relative":          {RuntimeSource{Name: "python3", Exec: "tool"}, "absolute"},
		"version":           {RuntimeSource{Name: "python3", Exec: exec + "/tool", Version: "3.11"}, "want a version"},
		"script":            {RuntimeSource{Name: "python3", Exec: exec + "/script"}, "script"},
		"absent":            {RuntimeSource{Name: "python3", Exec: exec + "/absent"}, "no such file"},
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
	exec := filepath.Join(files{"bin/tool": binary}.dir(t), "bin", "tool")
	for _, v := range []string{"3.9.0", "3.11.2", "3.10.0", "4.0.0-rc.1", "4.0.0"} {
		_, err := s.AddRuntime(t.Context(), RuntimeSource{Name: "python3", Exec: exec, Version: v}, nil)
		require.NoError(t, err)
	}
	_, err := s.AddRuntime(t.Context(), RuntimeSource{Name: "dash", Exec: exec}, nil)
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
