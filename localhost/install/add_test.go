package install

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/lendcli/lend/localhost/artifact"
	"github.com/lendcli/lend/localhost/install/npm"
	"github.com/lendcli/lend/localhost/manifest"
	"github.com/lendcli/lend/protocol/name"
	"github.com/stretchr/testify/require"
)

func TestAddNative(t *testing.T) {
	t.Parallel()
	dir := printer("1.0.0").dir(t)
	tgz := filepath.Join(t.TempDir(), "a.tar.gz")
	require.NoError(t, os.WriteFile(tgz, printer("1.0.0").tgz(t, "./"), 0o600))
	var digest string
	for n, src := range map[string]string{"directory": dir, "zip": printer("1.0.0").zip(t), "tar-gz": tgz} {
		s := openStore(t, Config{})
		r := add(t, s, src)
		require.Regexp(t, `^[0-9a-f]{64}$`, r.Digest)
		require.Regexp(t, `^sha256:[0-9a-f]{64}$`, r.ContractHash)
		require.Equal(t, "printer", r.Contract.Command)
		require.Empty(t, r.Runtime)
		if digest == "" {
			digest = r.Digest
		}
		require.Equal(t, digest, r.Digest, "the same content is the same release: %s", n)

		l, err := s.Launch(r)
		require.NoError(t, err)
		require.Equal(t, filepath.Join(l.ContractDir, "bin", "printer"), l.Path)
		require.True(t, strings.HasPrefix(l.Path, s.cfg.Dir), "it runs our copy")
		require.Empty(t, l.Prefix)
		require.Empty(t, l.Env)
		if runtime.GOOS != "windows" {
			info, err := os.Stat(l.Path)
			require.NoError(t, err)
			require.Equal(t, os.FileMode(0o500), info.Mode(), "the entrypoint runs, whatever the archive says")
		}
		require.NoError(t, l.Verify())
		require.NoError(t, l.Close())
		require.NoError(t, l.Close())
		require.NoError(t, s.Verify(t.Context(), key(t, "printer"), version(t, "1.0.0")))
		require.Equal(t, r, add(t, s, src), "again changes nothing")
		require.Empty(t, staged(t, s))
	}
}

func TestAddSeveral(t *testing.T) {
	t.Parallel()
	s := openStore(t, Config{})
	for _, v := range []string{"1.0.0", "0.9.0", "1.0.1"} {
		add(t, s, printer(v).dir(t))
	}
	all := releases(t, s)
	var versions []string
	for _, r := range all {
		versions = append(versions, r.Manifest.Version.String())
	}
	require.Equal(t, []string{"0.9.0", "1.0.0", "1.0.1"}, versions)
	r, err := s.Release(key(t, "printer"), version(t, "1.0.1"))
	require.NoError(t, err)
	require.Equal(t, all[2], r)
	_, err = s.Release(key(t, "printer"), version(t, "2.0.0"))
	require.ErrorIs(t, err, ErrNotInstalled)
	_, err = s.Release(name.ConnectorKey{}, name.Version{})
	require.ErrorIs(t, err, ErrNotInstalled)
	again := openStore(t, Config{Dir: s.cfg.Dir})
	fromDisk := releases(t, again)
	require.Equal(t, all, fromDisk)
}

func TestAddConflictAndReplace(t *testing.T) {
	t.Parallel()
	s := openStore(t, Config{})
	first := add(t, s, printer("1.0.0").dir(t))
	other := printer("1.0.0").with("doc/readme", "other").dir(t)
	_, err := s.Add(t.Context(), Source{Path: other}, nil)
	require.ErrorIs(t, err, ErrConflict)
	got, err := s.Release(first.Manifest.Key, first.Manifest.Version)
	require.NoError(t, err)
	require.Equal(t, first, got)

	l, err := s.Launch(first)
	require.NoError(t, err)
	second, err := s.Add(t.Context(), Source{Path: other, Replace: true}, nil)
	require.NoError(t, err)
	require.NotEqual(t, first.Digest, second.Digest)
	require.Equal(t, first.ContractHash, second.ContractHash)
	require.NoError(t, l.Verify(), "what runs stays whole until it is closed")
	_, err = s.Launch(first)
	require.ErrorIs(t, err, ErrNotInstalled, "the old digest is not there any more")

	openStore(t, Config{Dir: s.cfg.Dir})
	require.NoError(t, l.Verify(), "another process's sweep leaves it alone")
	require.NoError(t, l.Close())
	openStore(t, Config{Dir: s.cfg.Dir})
	require.NoDirExists(t, l.ContractDir, "then it goes")
	l, err = s.Launch(second)
	require.NoError(t, err)
	require.NoError(t, l.Close())
}

func TestAddRefuses(t *testing.T) {
	t.Parallel()
	sum := strings.Repeat("0", 64)
	for n, c := range map[string]struct {
		src  files
		want string
	}{
		"no-manifest":    {files{"bin/printer": binary}, "there is no connector-manifest.json at its root"},
		"below-root":     {files{"x/connector-manifest.json": printer("1.0.0")["connector-manifest.json"]}, "there is no connector-manifest.json"},
		"bad-manifest":   {printer("1.0.0").with("connector-manifest.json", "{}"), "schemaVersion"},
		"no-entrypoint":  {files{"connector-manifest.json": printer("1.0.0")["connector-manifest.json"]}, "entrypoint is not there"},
		"native-script":  {printer("1.0.0").with("bin/printer", "#!/bin/dash\n"), `say kind "script"`},
		"native-empty":   {printer("1.0.0").with("bin/printer", ""), "no executable"},
		"other-sha256":   {printer("1.0.0").with("connector-manifest.json", strings.Replace(printer("1.0.0")["connector-manifest.json"], `"kind": "native",`, `"kind": "native", "sha256": "`+sum+`",`, 1)), "the manifest says another"},
		"reserved":       {printer("1.0.0").with("connector-manifest.json", strings.Replace(printer("1.0.0")["connector-manifest.json"], `"cli":`, `"settings": [{"name": "x", "env": "Zdotdir"}], "cli":`, 1)), "settings[0].env: Zdotdir is reserved"},
		"no-runtime":     {greeter(""), "lend runtime add python3"},
		"npm-no-node":    {hello(), "lend runtime add node"},
		"script-missing": {files{"connector-manifest.json": greeter("")["connector-manifest.json"]}, "entrypoint is not there"},
	} {
		t.Run(n, func(t *testing.T) {
			t.Parallel()
			s := openStore(t, Config{})
			_, err := s.Add(t.Context(), Source{Path: c.src.dir(t)}, nil)
			require.ErrorContains(t, err, c.want)
			all := releases(t, s)
			require.Empty(t, all)
			require.Empty(t, staged(t, s))
		})
	}
	s := openStore(t, Config{})
	_, err := s.Add(t.Context(), Source{Path: "relative"}, nil)
	require.ErrorContains(t, err, "absolute")
	dir := printer("1.0.0").dir(t)
	require.NoError(t, os.Symlink("/etc/passwd", filepath.Join(dir, "doc", "link")))
	_, err = s.Add(t.Context(), Source{Path: dir}, nil)
	var re *artifact.RefusedError
	require.ErrorAs(t, err, &re)
	require.NoError(t, os.Remove(filepath.Join(dir, "connector-manifest.json")))
	_, err = s.Add(t.Context(), Source{Path: dir}, nil)
	require.ErrorContains(t, err, "there is no connector-manifest.json at its root", "told before anything else is looked at")
	around := filepath.Dir(s.cfg.Dir)
	require.NoError(t, os.WriteFile(filepath.Join(around, "connector-manifest.json"), []byte(printer("1.0.0")["connector-manifest.json"]), 0o600))
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(around, link))
	for _, holds := range []string{around, link} {
		_, err = s.Add(t.Context(), Source{Path: holds}, nil)
		require.ErrorContains(t, err, "the copy would be in it", holds)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = s.Add(ctx, Source{Path: printer("1.0.0").dir(t)}, nil)
	require.ErrorIs(t, err, context.Canceled)
}

func TestAddScript(t *testing.T) {
	t.Parallel()
	s := openStore(t, Config{})
	python := filepath.Join(files{"python3.11": native(t)}.dir(t), "python3.11")
	rt, err := s.AddRuntime(t.Context(), RuntimeSource{Name: "python3", Exec: python, Version: "3.11.2"}, nil)
	require.NoError(t, err)
	_, err = s.Add(t.Context(), Source{Path: greeter(`, "range": ">=3.12.0"`).dir(t)}, nil)
	require.ErrorIs(t, err, ErrNoRuntime)
	r := add(t, s, greeter(`, "range": ">=3.11.0 <4.0.0"`).dir(t))
	require.Equal(t, "python3@3.11.2", r.Runtime)
	l, err := s.Launch(r)
	require.NoError(t, err)
	defer l.Close()
	require.Equal(t, rt.Path, l.Path)
	require.NotEqual(t, python, l.Path, "it runs our copy")
	require.Equal(t, []string{filepath.Join(l.ContractDir, "greet.py")}, l.Prefix)
	require.NoError(t, l.Verify())

	require.NoError(t, os.WriteFile(python, []byte(native(t)+" newer"), 0o755))
	_, err = s.AddRuntime(t.Context(), RuntimeSource{Name: "python3", Exec: python, Version: "3.11.2"}, nil)
	require.NoError(t, err)
	require.NoError(t, l.Verify(), "what runs is held")
	_, err = s.Launch(r)
	require.ErrorIs(t, err, ErrNoRuntime, "another interpreter under the same version is not what was installed with")
	require.ErrorContains(t, err, "add the Connector again")
	add(t, s, greeter(`, "range": ">=3.11.0 <4.0.0"`).dir(t))
	l2, err := s.Launch(r)
	require.NoError(t, err)
	require.NoError(t, l2.Close())
}

func TestAddNPM(t *testing.T) {
	t.Parallel()
	s, f := npmStore(t)
	var stages []string
	r, err := s.Add(t.Context(), Source{Path: hello().dir(t)}, func(stage string, _, _ int64) {
		if len(stages) == 0 || stages[len(stages)-1] != stage {
			stages = append(stages, stage)
		}
	})
	require.NoError(t, err)
	require.Equal(t, []string{"import", "install hello@1.0.0", "verify packages"}, stages)
	require.Equal(t, "node@22.1.0", r.Runtime)
	require.True(t, r.HasScripts)
	l, err := s.Launch(r)
	require.NoError(t, err)
	defer l.Close()
	require.Equal(t, "node", strings.TrimSuffix(filepath.Base(l.Path), ".exe"))
	require.Len(t, l.Prefix, 1)
	require.True(t, strings.HasSuffix(filepath.ToSlash(l.Prefix[0]), "/package/node_modules/hello/cli.js"))
	require.Equal(t, []string{"NODE_DISABLE_COMPILE_CACHE=1"}, l.Env)
	require.NoFileExists(t, filepath.Join(filepath.Dir(filepath.Dir(l.Prefix[0])), ".package-lock.json"))
	require.NoError(t, l.Verify())
	require.Equal(t, r, add(t, s, hello().dir(t)))
	require.Equal(t, 1, f.runs, "the same content is not installed again")
	require.Empty(t, staged(t, s))
}

func TestAddNPMRefuses(t *testing.T) {
	t.Parallel()
	no := errors.New("exit status 1")
	for n, c := range map[string]struct {
		src    files
		change func(*fakeNPM)
		want   string
	}{
		"no-lock":         {src: files{"connector-manifest.json": hello()["connector-manifest.json"]}, want: "the manifest's lock is not there"},
		"no-integrity":    {src: hello().with("package-lock.json", strings.Replace(helloLock(), `"integrity"`, `"other"`, 1)), want: "it has no integrity"},
		"other-integrity": {src: hello().with("package-lock.json", strings.Replace(helloLock(), integrity([]byte("1.0.0")), integrity([]byte("x")), 1)), want: "its integrity is not the manifest's"},
		"npm-fails":       {change: func(f *fakeNPM) { f.err = no }, want: "EFAKE"},
		"other-version":   {change: func(f *fakeNPM) { f.tree["node_modules/dep/package.json"] = `{"name":"dep","version":"2.0.2"}` }, want: "the lock says"},
		"extra-package":   {change: func(f *fakeNPM) { f.tree["node_modules/evil/package.json"] = `{"name":"evil","version":"1.0.0"}` }, want: "not in the lock"},
		"missing-package": {change: func(f *fakeNPM) {
			delete(f.tree, "node_modules/dep/package.json")
			delete(f.tree, "node_modules/dep/index.js")
		}, want: "check installed packages"},
		"binary-bin": {change: func(f *fakeNPM) { f.tree["node_modules/hello/cli.js"] = "\x7fELF\x00" }, want: "neither a script nor a native executable"},
		"collision":  {change: func(f *fakeNPM) { f.tree["node_modules/dep/INDEX.js"] = "x" }, want: "letter case"},
	} {
		t.Run(n, func(t *testing.T) {
			t.Parallel()
			if n == "collision" && runtime.GOOS != "linux" {
				t.Skip("the names are one here")
			}
			s, f := npmStore(t)
			if c.src == nil {
				c.src = hello()
			}
			if c.change != nil {
				c.change(f)
			}
			_, err := s.Add(t.Context(), Source{Path: c.src.dir(t)}, nil)
			require.ErrorContains(t, err, c.want)
			_, err = s.Release(key(t, "hello"), version(t, "1.0.0"))
			require.ErrorIs(t, err, ErrNotInstalled)
			require.Empty(t, staged(t, s))
		})
	}
	s, _ := npmStore(t)
	s.cfg.Registry = ""
	_, err := s.Add(t.Context(), Source{Path: hello().dir(t)}, nil)
	require.ErrorIs(t, err, ErrNoRegistry)
	require.ErrorContains(t, err, "NPM_CONFIG_REGISTRY")
	s.cfg.Registry, s.cfg.Runner = "https://registry.example/", nil
	_, err = s.Add(t.Context(), Source{Path: hello().dir(t)}, nil)
	require.ErrorContains(t, err, "no runner")
	var le *npm.LockError
	_, err = s.Add(t.Context(), Source{Path: hello().with("package-lock.json", "{}").dir(t)}, nil)
	require.ErrorAs(t, err, &le)
}

// A failed replacement leaves what was there runnable.
func TestFailureLeavesThePreviousRelease(t *testing.T) {
	t.Parallel()
	s, f := npmStore(t)
	r := add(t, s, hello().dir(t))
	f.err = errors.New("exit status 1")
	_, err := s.Add(t.Context(), Source{Path: hello().with("readme", "new").dir(t), Replace: true}, nil)
	require.ErrorIs(t, err, f.err)
	l, err := s.Launch(r)
	require.NoError(t, err)
	require.NoError(t, l.Verify())
	require.NoError(t, l.Close())
}

func TestRemove(t *testing.T) {
	t.Parallel()
	s := openStore(t, Config{})
	r := add(t, s, printer("1.0.0").dir(t))
	add(t, s, printer("2.0.0").dir(t))
	l, err := s.Launch(r)
	require.NoError(t, err)
	require.ErrorIs(t, s.Remove(t.Context(), key(t, "other"), name.Version{}), ErrNotInstalled)
	require.ErrorIs(t, s.Remove(t.Context(), name.ConnectorKey{}, name.Version{}), ErrNotInstalled)
	require.ErrorIs(t, s.Remove(t.Context(), key(t, "printer"), version(t, "3.0.0")), ErrNotInstalled)
	require.NoError(t, s.Remove(t.Context(), key(t, "printer"), version(t, "1.0.0")))
	_, err = s.Launch(r)
	require.ErrorIs(t, err, ErrNotInstalled)
	require.NoError(t, l.Verify(), "a running one keeps its files")
	all := releases(t, s)
	require.Len(t, all, 1)
	require.NoError(t, s.Remove(t.Context(), key(t, "printer"), name.Version{}))
	require.NoError(t, l.Close())
	openStore(t, Config{Dir: s.cfg.Dir})
	require.NoDirExists(t, filepath.Join(s.cfg.Dir, "connectors", "printer"))
	add(t, s, printer("1.0.0").dir(t))
}

func TestAddIsConcurrent(t *testing.T) {
	t.Parallel()
	dir := storeDir(t)
	sources := []string{printer("1.0.0").dir(t), printer("1.0.0").dir(t), printer("2.0.0").dir(t), printer("1.0.0").zip(t)}
	var wg sync.WaitGroup
	for _, src := range sources {
		s := openStore(t, Config{Dir: dir}) // as another process would
		wg.Go(func() {
			r, err := s.Add(t.Context(), Source{Path: src}, nil)
			if err != nil {
				t.Error(err)
				return
			}
			l, err := s.Launch(r)
			if err != nil {
				t.Error(err)
				return
			}
			if err := errors.Join(l.Verify(), l.Close()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	s := openStore(t, Config{Dir: dir})
	all := releases(t, s)
	require.Len(t, all, 2)
	require.Empty(t, staged(t, s))
}

func TestNewExec(t *testing.T) {
	t.Parallel()
	s := openStore(t, Config{})
	src := files{"bin/Tool_9.exe": binary, "bin/greet.py": "#!/usr/bin/env -S python3 -I\nprint()\n", "bin/run": "#! /bin/dash -e\n", "readme": "x"}.dir(t)
	for file, want := range map[string]struct {
		kind             manifest.Kind
		profile, command string
	}{
		"Tool_9.exe": {manifest.KindNative, "", "tool_9"},
		"greet.py":   {manifest.KindScript, "python3", "greet"},
		"run":        {manifest.KindScript, "dash", "run"},
	} {
		dir := filepath.Join(t.TempDir(), "new")
		m, err := s.New(t.Context(), NewConnector{From: "exec:" + filepath.Join(src, "bin", file), Dir: dir, Key: "tool", Version: "2.0"}, nil)
		require.NoError(t, err)
		require.Equal(t, want.kind, m.CLI.Kind)
		require.Equal(t, want.command, m.CLI.Contract.Command)
		require.Equal(t, "tool", m.Key.String())
		require.Equal(t, "2.0", m.Version.String())
		if want.profile != "" {
			require.Equal(t, want.profile, m.CLI.Runtime.Profile)
			continue
		}
		r := add(t, s, dir)
		require.Equal(t, m, r.Manifest, "what was written is what is read")
	}
	for from, want := range map[string]string{
		"exec:relative":                        "absolute",
		"exec:" + filepath.Join(src, "readme"): "not an executable file",
		"exec:" + src:                          "not an executable file",
		"exec:" + src + "/absent":              "no such file",
		"pypi:x":                               "want npm:NAME@VERSION or exec:PATH",
	} {
		dir := filepath.Join(t.TempDir(), "new")
		_, err := s.New(t.Context(), NewConnector{From: from, Dir: dir}, nil)
		require.ErrorContains(t, err, want)
		require.NoDirExists(t, dir)
	}
	_, err := s.New(t.Context(), NewConnector{From: "exec:" + filepath.Join(src, "bin", "run"), Dir: src}, nil)
	require.ErrorContains(t, err, "is there already")
	_, err = s.New(t.Context(), NewConnector{From: "exec:" + filepath.Join(src, "bin", "run"), Dir: "new"}, nil)
	require.ErrorContains(t, err, "absolute")
	dir := filepath.Join(t.TempDir(), "new")
	_, err = s.New(t.Context(), NewConnector{From: "exec:" + filepath.Join(src, "bin", "run"), Dir: dir, Key: "Not A Key"}, nil)
	require.ErrorContains(t, err, "key")
	require.NoDirExists(t, dir)
}

func TestNewNPM(t *testing.T) {
	t.Parallel()
	s, f := npmStore(t)
	dir := filepath.Join(t.TempDir(), "new")
	m, err := s.New(t.Context(), NewConnector{From: "npm:hello@1.0.0", Dir: dir}, nil)
	require.NoError(t, err)
	require.Equal(t, "hello", m.Key.String())
	require.Equal(t, "hello", m.CLI.Package.Bin)
	require.Equal(t, ">=22.0.0 <23.0.0", m.CLI.Runtime.Range.String())
	require.Empty(t, m.CLI.Contract.Commands)
	require.FileExists(t, filepath.Join(dir, "package.json"))
	r := add(t, s, dir)
	require.Equal(t, m, r.Manifest)
	require.Empty(t, staged(t, s))

	for from, want := range map[string]string{
		"npm:hello": "one exact version", "npm:hello@latest": "one exact version", "npm:@s/hello": "one exact version", "npm:../x@1.0.0": "package name",
		"npm:other@1.0.0": "its root must depend on other",
	} {
		_, err := s.New(t.Context(), NewConnector{From: from, Dir: filepath.Join(t.TempDir(), "new")}, nil)
		require.ErrorContains(t, err, want)
	}
	_, err = s.New(t.Context(), NewConnector{From: "npm:hello@1.0.0", Dir: filepath.Join(t.TempDir(), "new"), Bin: "absent"}, nil)
	require.ErrorContains(t, err, `no bin named "absent"`)
	f.err = errors.New("exit status 1")
	_, err = s.New(t.Context(), NewConnector{From: "npm:hello@1.0.0", Dir: filepath.Join(t.TempDir(), "new")}, nil)
	require.ErrorIs(t, err, f.err)
	_, err = openStore(t, Config{}).New(t.Context(), NewConnector{From: "npm:hello@1.0.0", Dir: filepath.Join(t.TempDir(), "new")}, nil)
	require.ErrorIs(t, err, ErrNoRuntime)
}
