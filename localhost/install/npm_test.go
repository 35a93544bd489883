package install

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lendcli/lend/localhost/install/npm"
	"github.com/stretchr/testify/require"
)

// native is a program of this system.
func native(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	b, err := os.ReadFile(self)
	require.NoError(t, err)
	return string(b[:64<<10])
}

// edited changes the manifest of hello.
func edited(t *testing.T, from, to string) files {
	t.Helper()
	m := hello()["connector-manifest.json"]
	require.Contains(t, m, from)
	return hello().with("connector-manifest.json", strings.Replace(m, from, to, 1))
}

// A package's command that is a native executable is started itself, without node.
func TestNativeBin(t *testing.T) {
	t.Parallel()
	program := native(t)
	sum := sha256.Sum256([]byte(program))
	for n, c := range map[string]struct{ from, to, at string }{
		"bin":    {`"lock"`, `"bin": "hello", "lock"`, "cli.js"},
		"native": {`"lock"`, `"native": "libexec/tool", "lock"`, "libexec/tool"},
	} {
		t.Run(n, func(t *testing.T) {
			t.Parallel()
			s, f := npmStore(t)
			f.tree["node_modules/hello/"+c.at] = program
			r := add(t, s, edited(t, c.from, c.to).dir(t))
			require.Empty(t, r.Runtime, "node installed it and does not run it")
			l, err := s.Launch(r)
			require.NoError(t, err)
			defer l.Close()
			require.Equal(t, filepath.Base(filepath.FromSlash(c.at)), filepath.Base(l.Path))
			require.Empty(t, l.Prefix)
			require.Empty(t, l.Env)
			info, err := os.Stat(l.Path)
			require.NoError(t, err)
			require.NotZero(t, info.Mode()&0o100, "it can be executed, whatever npm left")
			require.NoError(t, l.Verify())
			flip(t, l.Path, 100)
			require.ErrorIs(t, l.Verify(), ErrTampered)
			_, err = s.Launch(r)
			require.ErrorIs(t, err, ErrTampered)
		})
	}
	for digest, want := range map[string]string{hex.EncodeToString(sum[:]): "", strings.Repeat("ab", 32): "the manifest says another"} {
		s, f := npmStore(t)
		f.tree["node_modules/hello/tool"] = program
		m := edited(t, `"lock"`, `"native": "tool", "lock"`)
		m["connector-manifest.json"] = strings.Replace(m["connector-manifest.json"], `"kind": "npm",`, `"kind": "npm", "sha256": "`+digest+`",`, 1)
		_, err := s.Add(t.Context(), Source{Path: m.dir(t)}, nil)
		if want == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, want)
	}
}

// New pins the executable of a package that has no command, from its own tarball.
func TestNewNative(t *testing.T) {
	t.Parallel()
	program := native(t)
	tarball := files{"package.json": `{"name": "@s/tool-here", "version": "1.0.0"}`, "bin/tool": program, "bin/tool.js": "x"}.tgz(t, "package/")
	_, f := npmStore(t)
	f.lock = `{"lockfileVersion": 3, "packages": {"": {"dependencies": {"@s/tool-here": "1.0.0"}},
		"node_modules/@s/tool-here": {"version": "1.0.0", "integrity": "` + integrity(tarball) + `"}}}`
	base, node, npmSource := registry(t, "@s/tool-here", tarball)
	s := openStore(t, Config{Registry: base, Runner: f})
	for _, src := range []RuntimeSource{node, npmSource} {
		_, err := s.AddRuntime(t.Context(), src, nil)
		require.NoError(t, err)
	}
	dir := filepath.Join(t.TempDir(), "new")
	m, err := s.New(t.Context(), NewConnector{From: "npm:@s/tool-here@1.0.0", Dir: dir, Native: "bin/tool", Postinstall: "install.js"}, nil)
	require.NoError(t, err)
	sum := sha256.Sum256([]byte(program))
	require.Equal(t, hex.EncodeToString(sum[:]), m.CLI.SHA256)
	require.Equal(t, "bin/tool", m.CLI.Package.Native)
	require.Equal(t, "install.js", m.CLI.Package.Lifecycle.Entrypoint)
	require.Equal(t, "tool", m.Key.String())
	require.Equal(t, "tool", m.CLI.Contract.Command)
	for n, want := range map[string]string{"bin/none": "the file is not there", "bin/tool.js": "not a native executable", "../x": "unsafe path"} {
		_, err = s.New(t.Context(), NewConnector{From: "npm:@s/tool-here@1.0.0", Dir: dir + "2", Native: n}, nil)
		require.ErrorContains(t, err, want)
	}
	_, err = s.New(t.Context(), NewConnector{From: "npm:@s/tool-here@1.0.0", Dir: dir + "2", Native: "bin/tool", Bin: "tool"}, nil)
	require.ErrorContains(t, err, "not both")
	_, err = s.New(t.Context(), NewConnector{From: "npm:@s/tool-here@1.0.0", Dir: dir + "2"}, nil)
	require.ErrorContains(t, err, "--native")
	require.Empty(t, staged(t, s))
}

// A receipt that calls a script a native executable starts nothing: it has no bit.
func TestReceiptCannotMakeAScriptNative(t *testing.T) {
	t.Parallel()
	s, _ := npmStore(t)
	r := add(t, s, hello().dir(t))
	at := filepath.Join(s.cfg.Dir, "connectors", "hello", "1.0.0", "receipt.json")
	b, err := os.ReadFile(at)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(at, []byte(strings.Replace(string(b), `"script":`, `"native": true, "script":`, 1)), 0o600))
	_, err = s.Launch(r)
	require.ErrorIs(t, err, ErrTampered)
}

const withInstall = `"lifecycle": {"event": "postinstall", "entrypoint": "install.js", "arguments": ["--quick"]}, "lock"`

// The one script that the manifest allows runs before the tree is hashed, so that
// what it changed is verified from then on.
func TestPostinstall(t *testing.T) {
	t.Parallel()
	s, f := npmStore(t)
	f.tree["node_modules/hello/package.json"] = `{"name": "hello", "version": "1.0.0", "bin": "cli.js", "scripts": {"postinstall": "node ./install.js"}}`
	f.tree["node_modules/hello/install.js"] = "replace()\n"
	var ran npm.Command
	f.script = func(c npm.Command) ([]byte, error) {
		ran = c
		return nil, os.WriteFile(filepath.Join(c.Dir, "cli.js"), []byte(native(t)), 0o600)
	}
	before := add(t, s, hello().dir(t))
	require.Empty(t, ran.Path, "without the manifest's word no script runs")
	require.Equal(t, "node@22.1.0", before.Runtime)
	require.True(t, before.HasScripts)
	require.NoError(t, s.Remove(t.Context(), key(t, "hello"), version(t, "1.0.0")))

	var stages []string
	r, err := s.Add(t.Context(), Source{Path: edited(t, `"lock"`, withInstall).dir(t)}, func(stage string, _, _ int64) { stages = append(stages, stage) })
	require.NoError(t, err)
	require.Contains(t, stages, "run postinstall of hello")
	require.False(t, r.HasScripts, "none is left that did not run")
	require.NotEqual(t, before.Digest, r.Digest, "what may run is part of the release")
	require.True(t, strings.HasSuffix(filepath.ToSlash(ran.Dir), "/project/node_modules/hello"))
	require.Equal(t, []string{"node", filepath.Join(ran.Dir, "install.js"), "--quick"}, ran.Args)
	var names []string
	for _, e := range ran.Env {
		n, v, _ := strings.Cut(e, "=")
		names = append(names, n)
		if n == "PATH" {
			require.Equal(t, filepath.Dir(ran.Path), v, "the verified interpreter's directory alone")
		}
	}
	slices.Sort(names)
	require.Equal(t, []string{
		"HOME", "NODE_DISABLE_COMPILE_CACHE", "PATH", "TEMP", "TMP", "TMPDIR", "USERPROFILE", "npm_lifecycle_event", "npm_package_name", "npm_package_version",
	}, names)
	l, err := s.Launch(r)
	require.NoError(t, err)
	defer l.Close()
	require.Equal(t, "cli.js", filepath.Base(l.Path), "what the script put there is what runs")
	require.NoError(t, l.Verify())
	flip(t, l.Path, 7)
	require.ErrorIs(t, l.Verify(), ErrTampered)
}

func TestPostinstallRefused(t *testing.T) {
	t.Parallel()
	no := errors.New("exit status 1")
	for n, c := range map[string]struct {
		scripts, body string
		script        func(npm.Command) ([]byte, error)
		want          string
	}{
		"none":   {`{}`, "x", nil, `the package's own postinstall is "", the manifest says "install.js"`},
		"other":  {`{"postinstall": "node setup.js"}`, "x", nil, `"node setup.js"`},
		"absent": {`{"postinstall": "node install.js"}`, "", nil, "install.js"},
		"shell":  {`{"postinstall": "node install.js"}`, "#!/bin/sh\n", nil, "not a script of node"},
		"binary": {`{"postinstall": "node install.js"}`, native(t), nil, "not a script of node"},
		"fails":  {`{"postinstall": "node install.js"}`, "x", func(npm.Command) ([]byte, error) { return []byte("no such program"), no }, "no such program"},
		"link":   {`{"postinstall": "node install.js"}`, "x", func(c npm.Command) ([]byte, error) { return nil, os.Symlink("/etc/passwd", filepath.Join(c.Dir, "l")) }, "symbolic link"},
		"package": {`{"postinstall": "node install.js"}`, "x", func(c npm.Command) ([]byte, error) {
			return nil, os.MkdirAll(filepath.Join(c.Dir, "..", "evil"), 0o700)
		}, "not in the lock"},
	} {
		t.Run(n, func(t *testing.T) {
			t.Parallel()
			s, f := npmStore(t)
			f.tree["node_modules/hello/package.json"] = `{"name": "hello", "version": "1.0.0", "bin": "cli.js", "scripts": ` + c.scripts + `}`
			if c.body != "" {
				f.tree["node_modules/hello/install.js"] = c.body
			}
			f.script = c.script
			_, err := s.Add(t.Context(), Source{Path: edited(t, `"lock"`, withInstall).dir(t)}, nil)
			require.ErrorContains(t, err, c.want)
			_, err = s.Release(key(t, "hello"), version(t, "1.0.0"))
			require.ErrorIs(t, err, ErrNotInstalled)
			require.Empty(t, staged(t, s))
		})
	}
}
