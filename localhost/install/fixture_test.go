package install

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lendcli/lend/localhost/artifact"
	"github.com/lendcli/lend/localhost/install/interpreter"
	"github.com/lendcli/lend/localhost/install/npm"
	"github.com/lendcli/lend/localhost/process"
	"github.com/lendcli/lend/protocol/name"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) {
	process.Main()
	os.Exit(m.Run())
}

// openStore opens a store in a directory of the test.
func openStore(t *testing.T, c Config) *Store {
	t.Helper()
	if c.Dir == "" {
		c.Dir = storeDir(t)
	}
	s, err := Open(c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// storeDir is a directory whose read-only trees can be removed after the test.
func storeDir(t *testing.T) string {
	t.Helper()
	parent := t.TempDir()
	t.Cleanup(func() {
		root, err := os.OpenRoot(parent)
		require.NoError(t, err)
		require.NoError(t, artifact.Remove(root, "store"))
		require.NoError(t, root.Close())
	})
	return filepath.Join(parent, "store")
}

func key(t *testing.T, s string) name.ConnectorKey {
	t.Helper()
	k, err := name.ParseConnectorKey(s)
	require.NoError(t, err)
	return k
}

func version(t *testing.T, s string) name.Version {
	t.Helper()
	v, err := name.ParseVersion(s)
	require.NoError(t, err)
	return v
}

// flip changes one byte of a read-only file in place and puts its times back.
func flip(t *testing.T, p string, at int64) {
	t.Helper()
	info, err := os.Stat(p)
	require.NoError(t, err)
	require.NoError(t, os.Chmod(p, 0o600))
	f, err := os.OpenFile(p, os.O_RDWR, 0)
	require.NoError(t, err)
	var b [1]byte
	_, err = f.ReadAt(b[:], at)
	require.NoError(t, err)
	b[0] ^= 1
	_, err = f.WriteAt(b[:], at)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	require.NoError(t, os.Chmod(p, info.Mode()))
	require.NoError(t, os.Chtimes(p, info.ModTime(), info.ModTime()))
}

type files map[string]string

// dir writes the files into a new directory; those in bin/ are executable.
func (f files) dir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for p, body := range f {
		at := filepath.Join(dir, filepath.FromSlash(p))
		require.NoError(t, os.MkdirAll(filepath.Dir(at), 0o755))
		mode := fs.FileMode(0o644)
		if strings.HasPrefix(p, "bin/") {
			mode = 0o755
		}
		require.NoError(t, os.WriteFile(at, []byte(body), mode))
	}
	return dir
}

func (f files) zip(t *testing.T) string {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, p := range slices.Sorted(maps.Keys(f)) {
		w, err := z.Create(p) // no modes, as archivers of Windows write it
		require.NoError(t, err)
		_, err = io.WriteString(w, f[p])
		require.NoError(t, err)
	}
	require.NoError(t, z.Close())
	at := filepath.Join(t.TempDir(), "a.zip")
	require.NoError(t, os.WriteFile(at, b.Bytes(), 0o600))
	return at
}

// tgz packs the files below prefix.
func (f files) tgz(t *testing.T, prefix string) []byte {
	t.Helper()
	var b bytes.Buffer
	g := gzip.NewWriter(&b)
	w := tar.NewWriter(g)
	for _, p := range slices.Sorted(maps.Keys(f)) {
		require.NoError(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: prefix + p, Mode: 0o644, Size: int64(len(f[p]))}))
		_, err := io.WriteString(w, f[p])
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	require.NoError(t, g.Close())
	return b.Bytes()
}

func (f files) with(p, body string) files {
	out := maps.Clone(f)
	out[p] = body
	return out
}

const binary = "\x7fELF\x02\x01\x01 a program"

// printer is a native Connector.
func printer(version string) files {
	return files{
		"bin/printer": binary, "doc/readme": "read me",
		"connector-manifest.json": `{"schemaVersion": "1", "key": "printer", "version": "` + version + `", "displayName": "Printer",
			"cli": {"command": "printer", "kind": "native", "entrypoint": "bin/printer",
				"commands": {"print": {"arguments": ["print"], "parameters": {"text": {"position": 1, "pattern": "[a-z]+"}}}}}}`,
	}
}

// greeter is a script Connector.
func greeter(rng string) files {
	return files{
		"greet.py": "print('hi')\n",
		"connector-manifest.json": `{"schemaVersion": "1", "key": "greet", "version": "0.1.0", "displayName": "Greet",
			"cli": {"command": "greet", "kind": "script", "entrypoint": "greet.py", "runtime": {"profile": "python3"` + rng + `}}}`,
	}
}

func integrity(b []byte) string {
	sum := sha512.Sum512(b)
	return "sha512-" + base64.StdEncoding.EncodeToString(sum[:])
}

// helloTree is what npm lays out for the package hello.
func helloTree() files {
	return files{
		"node_modules/.package-lock.json": "{}",
		"node_modules/hello/package.json": `{"name": "hello", "version": "1.0.0", "bin": "cli.js"}`,
		"node_modules/hello/cli.js":       "#!/usr/bin/env node\nconsole.log('hello')\n",
		"node_modules/dep/package.json":   `{"name": "dep", "version": "2.0.1"}`,
		"node_modules/dep/index.js":       "module.exports = 1\n",
	}
}

func helloLock() string {
	entry := func(version string, extra string) string {
		return fmt.Sprintf(`{"version": %q, "integrity": %q%s}`, version, integrity([]byte(version)), extra)
	}
	return `{"lockfileVersion": 3, "packages": {"": {"dependencies": {"hello": "1.0.0"}},
		"node_modules/hello": ` + entry("1.0.0", `, "bin": {"hello": "cli.js"}, "hasInstallScript": true`) + `,
		"node_modules/dep": ` + entry("2.0.1", "") + `}}`
}

// hello is an npm Connector.
func hello() files {
	return files{
		"package-lock.json": helloLock(),
		"connector-manifest.json": `{"schemaVersion": "1", "key": "hello", "version": "1.0.0", "displayName": "Hello",
			"cli": {"command": "hello", "kind": "npm", "runtime": {"profile": "node", "range": ">=22.0.0 <23.0.0"},
			"package": {"name": "hello", "version": "1.0.0", "integrity": "` + integrity([]byte("1.0.0")) + `", "lock": "package-lock.json"}}}`,
	}
}

// fakeNPM is a Runner that does what npm would.
type fakeNPM struct {
	t    *testing.T
	tree files
	lock string
	err  error
	runs int

	script func(npm.Command) ([]byte, error) // a lifecycle's
}

func (f *fakeNPM) Run(_ context.Context, c npm.Command) ([]byte, error) {
	if f.script != nil && !strings.HasSuffix(c.Args[1], "npm-cli.js") {
		return f.script(c)
	}
	f.runs++
	if f.err != nil {
		return []byte("npm error code EFAKE\n"), f.err
	}
	for _, p := range []string{c.Path, c.Args[1]} {
		if _, err := os.Stat(p); err != nil {
			return nil, err
		}
	}
	if slices.Contains(c.Args, "--package-lock-only") {
		return nil, os.WriteFile(filepath.Join(c.Dir, npm.LockFile), []byte(f.lock), 0o600)
	}
	for p, body := range f.tree {
		at := filepath.Join(c.Dir, filepath.FromSlash(p))
		if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
			return nil, err
		}
		if err := os.WriteFile(at, []byte(body), 0o600); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// registry serves the managed node and npm, and says what they are.
func registry(t *testing.T, more ...any) (base string, node, npmSource RuntimeSource) {
	t.Helper()
	pkg, _, exec, ok := interpreter.Tried("node")
	if !ok {
		t.Skip("there is no managed node for this system")
	}
	nodeTar := files{exec: binary + " node", "LICENSE": "free", "package.json": "{}", "include/x.h": "left out"}.tgz(t, "package/")
	npmTar := files{"bin/npm-cli.js": "// npm\n", "package.json": "{}", "lib/x.js": "1"}.tgz(t, "package/")
	mux := http.NewServeMux()
	serve := func(pkg, version string, b []byte) {
		mux.HandleFunc("/"+pkg+"/-/"+pkg+"-"+version+".tgz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(b) })
	}
	serve(pkg, "22.1.0", nodeTar)
	serve("npm", "11.0.0", npmTar)
	for i := 0; i < len(more); i += 2 { // name of a package in version 1.0.0, tarball
		pkg, b := more[i].(string), more[i+1].([]byte)
		mux.HandleFunc("/"+pkg+"/-/"+pkg[strings.LastIndex(pkg, "/")+1:]+"-1.0.0.tgz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(b) })
	}
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	return srv.URL, RuntimeSource{Name: "node", Version: "22.1.0", Integrity: integrity(nodeTar)},
		RuntimeSource{Name: "npm", Version: "11.0.0", Integrity: integrity(npmTar)}
}

// npmStore is a store with a managed node and npm, and a fake npm behind it.
func npmStore(t *testing.T) (*Store, *fakeNPM) {
	t.Helper()
	base, node, npmSource := registry(t)
	f := &fakeNPM{t: t, tree: helloTree(), lock: helloLock()}
	s := openStore(t, Config{Registry: base, Runner: f})
	for _, src := range []RuntimeSource{node, npmSource} {
		_, err := s.AddRuntime(t.Context(), src, nil)
		require.NoError(t, err)
	}
	return s, f
}

// releases lists what is installed; nothing of it is damaged.
func releases(t *testing.T, s *Store) []Release {
	t.Helper()
	all, damaged, err := s.Releases()
	require.NoError(t, err)
	require.Empty(t, damaged)
	return all
}

func add(t *testing.T, s *Store, path string) Release {
	t.Helper()
	r, err := s.Add(t.Context(), Source{Path: path}, nil)
	require.NoError(t, err)
	return r
}

// staged lists what is left in the staging directory.
func staged(t *testing.T, s *Store) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(s.cfg.Dir, "staging"))
	require.NoError(t, err)
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func jsonOf(t *testing.T, path string) map[string]any {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	var v map[string]any
	require.NoError(t, json.Unmarshal(b, &v))
	return v
}
