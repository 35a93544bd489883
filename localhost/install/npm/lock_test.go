package npm

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/lendcli/lend/localhost/manifest"
	"github.com/stretchr/testify/require"
)

const someIntegrity = "sha512-XmOWe7eyHYH14cLdVPoyg+GOH3rYX++KpzrylJwSW98t3Nk+U8XOl8FWKOgwtzdb8lXGf6zYwDUzeHMWfxasyg=="

const goodLock = `{
  "name": "x", "lockfileVersion": 3, "requires": true,
  "packages": {
    "": {"dependencies": {"hello": "1.0.0"}},
    "node_modules/hello": {"version": "1.0.0", "resolved": "https://registry.example/hello/-/hello-1.0.0.tgz", "integrity": "` + someIntegrity + `",
      "dependencies": {"dep": "^2.0.0"}, "bin": {"hello": "cli.js"}, "engines": {"node": ">=18"}, "hasInstallScript": true},
    "node_modules/dep": {"version": "2.0.1", "integrity": "` + someIntegrity + `", "license": "MIT"},
    "node_modules/hello/node_modules/@scope/JSONStream": {"version": "3.0.0-rc.1", "integrity": "` + someIntegrity + `", "optional": true, "os": ["another"], "engines": ["x"]},
    "node_modules/alias": {"name": "real", "version": "4.0.0", "integrity": "` + someIntegrity + `", "bin": "x.js"}
  }
}`

func TestParseLock(t *testing.T) {
	t.Parallel()
	l, err := ParseLock([]byte(goodLock), "hello", "1.0.0")
	require.NoError(t, err)
	require.True(t, l.HasScripts(""))
	require.False(t, l.HasScripts("hello"))
	want, err := ParseIntegrity(someIntegrity)
	require.NoError(t, err)
	require.Equal(t, someIntegrity, want.String())
	require.Equal(t, []Locked{
		{Path: "node_modules/alias", Name: "real", Version: "4.0.0", Integrity: want, Bin: map[string]string{"real": "x.js"}},
		{Path: "node_modules/dep", Name: "dep", Version: "2.0.1", Integrity: want},
		{Path: "node_modules/hello", Name: "hello", Version: "1.0.0", Integrity: want, HasScripts: true, Bin: map[string]string{"hello": "cli.js"}, Engine: ">=18"},
		{Path: "node_modules/hello/node_modules/@scope/JSONStream", Name: "@scope/JSONStream", Version: "3.0.0-rc.1", Integrity: want, Optional: true},
	}, l.Packages())
	_, ok := l.Package("node_modules/dep")
	require.True(t, ok)
	_, ok = l.Package("node_modules/other")
	require.False(t, ok)
}

func TestParseLockRefuses(t *testing.T) {
	t.Parallel()
	dep := `"node_modules/dep": {"version": "2.0.1", "integrity": "` + someIntegrity + `"`
	for _, c := range []struct{ name, from, to, want string }{
		{"version-2", `"lockfileVersion": 3`, `"lockfileVersion": 2`, "lockfileVersion is 2"},
		{"no-root", `"": {"dependencies": {"hello": "1.0.0"}},`, ``, "no root entry"},
		{"root-other", `"": {"dependencies": {"hello": "1.0.0"}}`, `"": {"dependencies": {"dep": "2.0.1"}}`, "its root must depend on hello 1.0.0"},
		{"root-range", `{"hello": "1.0.0"}`, `{"hello": "^1.0.0"}`, "its root must depend"},
		{"root-more", `{"hello": "1.0.0"}`, `{"hello": "1.0.0", "dep": "2.0.1"}`, "its root must depend"},
		{"root-dev", `"": {`, `"": {"devDependencies": {"dep": "1"}, `, "its root must depend"},
		{"root-workspaces", `"": {`, `"": {"workspaces": ["."], `, "its root must depend"},
		{"other-version", `"node_modules/hello": {"version": "1.0.0"`, `"node_modules/hello": {"version": "1.0.1"`, "does not pin hello 1.0.0"},
		{"no-integrity", dep, `"node_modules/dep": {"version": "2.0.1"`, "it has no integrity"},
		{"sha1", dep, `"node_modules/dep": {"version": "2.0.1", "integrity": "sha1-2jmj7l5rSw0yVb/vlWAYkK/YBwk="`, "invalid integrity"},
		{"two-integrities", dep, dep[:len(dep)-1] + ` sha1-2jmj7l5rSw0yVb/vlWAYkK/YBwk="`, "invalid integrity"},
		{"git", dep, dep + `, "resolved": "git+ssh://git@host/x.git#abc"`, "does not come from a registry"},
		{"http", dep, dep + `, "resolved": "http://registry.example/dep/-/dep-2.0.1.tgz"`, "does not come from a registry"},
		{"file", dep, dep + `, "resolved": "file:../dep"`, "does not come from a registry"},
		{"user-in-url", dep, dep + `, "resolved": "https://u:p@registry.example/dep/-/dep-2.0.1.tgz"`, "does not come from a registry"},
		{"link", dep, dep + `, "link": true`, "a link"},
		{"bundled", dep, dep + `, "inBundle": true`, "bundled"},
		{"dev", dep, dep + `, "dev": true`, "development"},
		{"no-version", dep, `"node_modules/dep": {"integrity": "` + someIntegrity + `"`, "is not exact"},
		{"version-url", dep, `"node_modules/dep": {"version": "https://x/y.tgz", "integrity": "` + someIntegrity + `"`, "is not exact"},
		{"workspace-path", `"node_modules/dep"`, `"packages/dep"`, "not the path"},
		{"escape", `"node_modules/dep"`, `"node_modules/../dep"`, "not the path"},
		{"dot-package", `"node_modules/dep"`, `"node_modules/.bin"`, "not the path"},
		{"modules-package", `"node_modules/dep"`, `"node_modules/node_modules"`, "not the path"},
		{"slash", `"node_modules/dep"`, `"node_modules/dep/"`, "not the path"},
		{"device", `"node_modules/dep"`, `"node_modules/aux"`, "not the path"},
		{"alias-name", `"name": "real"`, `"name": "../real"`, "is not a package's"},
		{"duplicate", `"node_modules/alias"`, `"node_modules/dep"`, "duplicate field"},
		{"case", `"integrity": "` + someIntegrity + `", "license"`, `"Integrity": "` + someIntegrity + `", "license"`, "did you mean"},
		{"trailing", `"lockfileVersion": 3`, `"lockfileVersion": 3}{"a": 1`, "something follows"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, 1, strings.Count(goodLock, c.from))
			l, err := ParseLock([]byte(strings.Replace(goodLock, c.from, c.to, 1)), "hello", "1.0.0")
			require.ErrorContains(t, err, c.want)
			var le *LockError
			require.ErrorAs(t, err, &le)
			require.Zero(t, l)
		})
	}
}

func TestWithoutAddresses(t *testing.T) {
	t.Parallel()
	b, err := portable([]byte(goodLock))
	require.NoError(t, err)
	require.NotContains(t, string(b), "registry.example")
	before, err := ParseLock([]byte(goodLock), "hello", "1.0.0")
	require.NoError(t, err)
	after, err := ParseLock(b, "hello", "1.0.0")
	require.NoError(t, err)
	require.Equal(t, before, after)
}

func FuzzParseLock(f *testing.F) {
	f.Add([]byte(goodLock))
	f.Add([]byte(`{"lockfileVersion":3,"packages":{"":{"dependencies":{"hello":"1.0.0"}}}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := ParseLock(b, "hello", "1.0.0")
		if err != nil {
			require.Zero(t, l)
			return
		}
		for _, p := range l.Packages() {
			require.NotZero(t, p.Integrity)
			require.True(t, filepath.IsLocal(p.Path))
			require.True(t, strings.HasPrefix(p.Path, "node_modules/"))
		}
		bare, err := portable(b)
		require.NoError(t, err)
		again, err := ParseLock(bare, "hello", "1.0.0")
		require.NoError(t, err)
		require.Equal(t, l, again)
	})
}

func packageFile(name, version string) *fstest.MapFile {
	b, err := json.Marshal(map[string]any{"name": name, "version": version, "bin": map[string]string{"hello": "cli.js", "native": "./bin/native", "sh": "x.sh", "up": "../dep/x.js"}})
	if err != nil {
		panic(err)
	}
	return &fstest.MapFile{Data: b}
}

func goodTree() fstest.MapFS {
	return fstest.MapFS{
		"node_modules/hello/package.json":                                        packageFile("hello", "1.0.0"),
		"node_modules/hello/cli.js":                                              {Data: []byte("#!/usr/bin/env node\n")},
		"node_modules/hello/bin/native":                                          {Data: []byte("\x7fELF\x02\x01\x01\x00")},
		"node_modules/hello/x.sh":                                                {Data: []byte("#!/bin/dash\n")},
		"node_modules/hello/test/node_modules/fixture/package.json":              packageFile("fixture", "0.0.1"),
		"node_modules/hello/node_modules/@scope/JSONStream/package.json":         packageFile("@scope/JSONStream", "3.0.0-rc.1"),
		"node_modules/dep/package.json":                                          packageFile("dep", "2.0.1"),
		"node_modules/alias/package.json":                                        packageFile("real", "4.0.0"),
		"node_modules/hello/node_modules/@scope/JSONStream/deep/node_modules/.x": {Data: []byte("x")},
	}
}

func TestCheckTree(t *testing.T) {
	t.Parallel()
	l, err := ParseLock([]byte(goodLock), "hello", "1.0.0")
	require.NoError(t, err)
	require.NoError(t, CheckTree(goodTree(), l))
	for _, c := range []struct {
		name, want string
		change     func(fstest.MapFS)
	}{
		{"optional-absent", "", func(m fstest.MapFS) {
			delete(m, "node_modules/hello/node_modules/@scope/JSONStream/package.json")
			delete(m, "node_modules/hello/node_modules/@scope/JSONStream/deep/node_modules/.x")
		}},
		{"absent", "node_modules/dep", func(m fstest.MapFS) { delete(m, "node_modules/dep/package.json") }},
		{"version", "the lock says", func(m fstest.MapFS) { m["node_modules/dep/package.json"] = packageFile("dep", "2.0.2") }},
		{"name", "the lock says", func(m fstest.MapFS) { m["node_modules/dep/package.json"] = packageFile("dep2", "2.0.1") }},
		{"alias-name", "the lock says", func(m fstest.MapFS) { m["node_modules/alias/package.json"] = packageFile("alias", "4.0.0") }},
		{"extra", "not in the lock", func(m fstest.MapFS) { m["node_modules/extra/package.json"] = packageFile("extra", "1.0.0") }},
		{"extra-scoped", "not in the lock", func(m fstest.MapFS) {
			m["node_modules/@scope/extra/package.json"] = packageFile("@scope/extra", "1.0.0")
		}},
		{"extra-nested", "not in the lock", func(m fstest.MapFS) {
			m["node_modules/dep/node_modules/extra/package.json"] = packageFile("extra", "1.0.0")
		}},
		{"extra-file", "not in the lock", func(m fstest.MapFS) { m["node_modules/stray.js"] = &fstest.MapFile{Data: []byte("x")} }},
		{"bin-links", "not in the lock", func(m fstest.MapFS) { m["node_modules/.bin/hello"] = &fstest.MapFile{Data: []byte("x")} }},
		{"broken", "its package.json", func(m fstest.MapFS) { m["node_modules/dep/package.json"] = &fstest.MapFile{Data: []byte("{")} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := goodTree()
			c.change(m)
			err := CheckTree(m, l)
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestLeave(t *testing.T) {
	t.Parallel()
	for p, want := range map[string]bool{
		"package.json": true, "package-lock.json": true, "node_modules": false, "node_modules/.bin": true, "node_modules/.package-lock.json": true,
		"node_modules/a": false, "node_modules/a/node_modules/.bin": true, "node_modules/@s/a/node_modules/.bin": true,
		"node_modules/a/test/node_modules/.bin": false, "node_modules/a/.bin": false, "node_modulesx": true,
	} {
		require.Equal(t, want, Leave(p), p)
	}
}

// thisExecutable is the beginning of a native executable of this system.
func thisExecutable(t *testing.T) []byte {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	f, err := os.Open(self)
	require.NoError(t, err)
	defer f.Close()
	head, err := io.ReadAll(io.LimitReader(f, 4096))
	require.NoError(t, err)
	return head
}

func TestFindProgram(t *testing.T) {
	t.Parallel()
	tree := goodTree()
	find := func(pkg, bin, native string) (Program, error) {
		return FindProgram(tree, manifest.Package{Name: pkg, Bin: bin, Native: native})
	}
	p, err := find("hello", "", "")
	require.NoError(t, err, "of several, the one named as the package is")
	require.Equal(t, Program{Path: "node_modules/hello/cli.js"}, p)
	for bin, want := range map[string]string{
		"native": "neither a script nor a native executable", "sh": "another interpreter", "up": "leaves the package", "absent": `it has "hello", "native", "sh", "up"`,
	} {
		_, err = find("hello", bin, "")
		require.ErrorContains(t, err, want)
	}
	tree["node_modules/one/package.json"] = &fstest.MapFile{Data: []byte(`{"name":"one","bin":"./lib/cli.js","scripts":{"postinstall":"node get.js"}}`)}
	_, err = find("one", "", "")
	require.ErrorContains(t, err, `the file is not there; the package's postinstall script, which did not run, may make or download it: "node get.js"`)
	tree["node_modules/one/lib/cli.js"] = &fstest.MapFile{Data: []byte("x")}
	p, err = find("one", "", "")
	require.NoError(t, err, "one string is named as the package is")
	require.Equal(t, Program{Path: "node_modules/one/lib/cli.js"}, p)
	_, err = find("one", "", "lib/cli.js")
	require.ErrorContains(t, err, "it is not a native executable")
	tree["node_modules/@s/two/package.json"] = &fstest.MapFile{Data: []byte(`{"name":"@s/two","bin":{"other":"x.js"},"scripts":7}`)}
	_, err = find("@s/two", "", "")
	require.ErrorContains(t, err, "the file is not there")
	tree["node_modules/@s/two/x.js"] = &fstest.MapFile{}
	_, err = find("@s/two", "other", "")
	require.ErrorContains(t, err, "empty")
	tree["node_modules/none/package.json"] = &fstest.MapFile{Data: []byte(`{"name":"none"}`)}
	_, err = find("none", "", "")
	require.ErrorContains(t, err, "it has none")
	_, err = find("absent", "", "")
	require.ErrorIs(t, err, os.ErrNotExist)

	own := thisExecutable(t)
	tree["node_modules/none/bin/tool"] = &fstest.MapFile{Data: own}
	tree["node_modules/@s/two/x.js"] = &fstest.MapFile{Data: own}
	p, err = find("none", "", "bin/tool")
	require.NoError(t, err)
	require.Equal(t, Program{Path: "node_modules/none/bin/tool", Native: true}, p)
	p, err = find("@s/two", "other", "")
	require.NoError(t, err, "a bin may be an executable, too")
	require.Equal(t, Program{Path: "node_modules/@s/two/x.js", Native: true}, p)
	_, err = find("none", "", "../one/lib/cli.js")
	require.ErrorContains(t, err, "leaves the package")
	other := make([]byte, 64) // an ELF file for a processor that Go has never run on
	copy(other, "\x7fELF\x02\x01\x01")
	other[16], other[18] = 2, 88
	tree["node_modules/none/bin/tool"] = &fstest.MapFile{Data: other}
	_, err = find("none", "", "bin/tool")
	require.ErrorContains(t, err, "for another system")
}
