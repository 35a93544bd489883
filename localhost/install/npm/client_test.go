package npm

import (
	"context"
	"crypto/sha512"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func integrityOf(t *testing.T, b string) Integrity {
	t.Helper()
	sum := sha512.Sum512([]byte(b))
	i, err := ParseIntegrity("sha512-" + base64.StdEncoding.EncodeToString(sum[:]))
	require.NoError(t, err)
	return i
}

func TestParseIntegrityRefuses(t *testing.T) {
	t.Parallel()
	b := strings.TrimPrefix(someIntegrity, "sha512-")
	for _, bad := range []string{"", "sha512-", b, "sha256-" + b, "sha512-" + b[:40], someIntegrity + " ", someIntegrity + "?x", "sha512-" + strings.Replace(b, "==", "", 1), "SHA512-" + b} {
		_, err := ParseIntegrity(bad)
		require.Error(t, err, bad)
	}
}

func scratch(t *testing.T) *os.File {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "")
	require.NoError(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func TestFetch(t *testing.T) {
	t.Parallel()
	const body = "a tarball"
	mux := http.NewServeMux()
	mux.HandleFunc("/base/hello/-/hello-1.0.0.tgz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) })
	mux.HandleFunc("/base/@s/hello/-/hello-1.0.0.tgz", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/base/hello/-/hello-1.0.0.tgz", http.StatusFound)
	})
	mux.HandleFunc("/base/away/-/away-1.0.0.tgz", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://registry.example/x.tgz", http.StatusFound)
	})
	mux.HandleFunc("/base/loop/-/loop-1.0.0.tgz", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, r.URL.Path, http.StatusFound)
	})
	mux.HandleFunc("/base/big/-/big-1.0.0.tgz", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "999999999999")
	})
	mux.HandleFunc("/base/cut/-/cut-1.0.0.tgz", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, body)
	})
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	r := Registry{Base: srv.URL + "/base/"}

	for _, pkg := range []string{"hello", "@s/hello"} {
		f := scratch(t)
		_, err := f.WriteString("")
		require.NoError(t, err)
		var done int64
		require.NoError(t, Fetch(t.Context(), r, pkg, "1.0.0", integrityOf(t, body), f, func(n, total int64) {
			done = n
			require.EqualValues(t, len(body), total)
		}))
		b, err := os.ReadFile(f.Name())
		require.NoError(t, err)
		require.Equal(t, body, string(b))
		require.EqualValues(t, len(body), done)
	}
	require.ErrorIs(t, Fetch(t.Context(), r, "hello", "1.0.0", integrityOf(t, "other"), scratch(t), nil), ErrIntegrity)
	for pkg, want := range map[string]string{
		"absent": "answers 404", "away": "a redirect that is not taken", "loop": "a redirect that is not taken", "big": "it is larger than", "cut": "unexpected EOF",
		"../x": "want a package name",
	} {
		err := Fetch(t.Context(), r, pkg, "1.0.0", integrityOf(t, body), scratch(t), nil)
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), srv.URL)
	}
	require.ErrorContains(t, Fetch(t.Context(), r, "hello", "latest", integrityOf(t, body), scratch(t), nil), "one exact version")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, Fetch(ctx, r, "hello", "1.0.0", integrityOf(t, body), scratch(t), nil), context.Canceled)
}

func TestFetchOverTLS(t *testing.T) {
	t.Parallel()
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "x") }))
	t.Cleanup(srv.Close)
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	require.Error(t, Fetch(t.Context(), Registry{Base: srv.URL}, "hello", "1.0.0", integrityOf(t, "x"), scratch(t), nil), "its certificate is not known")
	ca := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}), 0o600))
	require.NoError(t, Fetch(t.Context(), Registry{Base: srv.URL, CAFile: ca}, "hello", "1.0.0", integrityOf(t, "x"), scratch(t), nil))
	require.ErrorContains(t, Fetch(t.Context(), Registry{Base: srv.URL, CAFile: ca + ".absent"}, "hello", "1.0.0", integrityOf(t, "x"), scratch(t), nil), "read certificates")
	require.NoError(t, os.WriteFile(ca, []byte("nothing"), 0o600))
	require.ErrorContains(t, Fetch(t.Context(), Registry{Base: srv.URL, CAFile: ca}, "hello", "1.0.0", integrityOf(t, "x"), scratch(t), nil), "none in")
}

func TestRegistryRefuses(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"", "registry.example", "http://registry.example/", "ftp://localhost/", "https://u:p@registry.example/", "https://registry.example/?q", "https://registry.example/#f", "file:///x"} {
		_, _, err := Registry{Base: bad}.check()
		require.Error(t, err, bad)
	}
	for _, good := range []string{"https://registry.example/", "http://127.0.0.1:1/", "http://localhost:1/x", "http://[::1]:1"} {
		_, _, err := Registry{Base: good}.check()
		require.NoError(t, err, good)
	}
	_, _, err := Registry{Base: "https://registry.example/", Proxy: "socks5://u:secret@x"}.check()
	require.Error(t, err)
	require.NotContains(t, err.Error(), "secret")
}

func TestCopyFile(t *testing.T) {
	t.Parallel()
	require.NoError(t, CopyFile(strings.NewReader("x"), integrityOf(t, "x"), scratch(t)))
	require.ErrorIs(t, CopyFile(strings.NewReader("y"), integrityOf(t, "x"), scratch(t)), ErrIntegrity)
}

// recorder is a Runner that remembers what it was to run.
type recorder struct {
	ran Command
	do  func(Command) ([]byte, error)
}

func (r *recorder) Run(_ context.Context, c Command) ([]byte, error) {
	r.ran = c
	return r.do(c)
}

func TestToolRunsNpmShutOff(t *testing.T) {
	t.Parallel()
	dir, lock := t.TempDir(), []byte(goodLock)
	r := &recorder{do: func(c Command) ([]byte, error) {
		b, err := os.ReadFile(filepath.Join(c.Dir, LockFile))
		require.NoError(t, err)
		require.NotContains(t, string(b), "resolved", "npm asks no host but the owner's registry")
		b, err = os.ReadFile(filepath.Join(c.Dir, ProjectFile))
		require.NoError(t, err)
		require.JSONEq(t, `{"private":true,"dependencies":{"hello":"1.0.0"}}`, string(b))
		return nil, nil
	}}
	tool := Tool{Node: "/rt/node", CLI: "/rt/npm-cli.js", Cache: "/c", Runner: r, Registry: Registry{Base: "https://registry.example/", CAFile: "/ca.pem", Proxy: "http://proxy.example:1"}}
	require.NoError(t, tool.CI(t.Context(), dir, lock, "hello", "1.0.0"))
	require.Equal(t, "/rt/node", r.ran.Path)
	require.Equal(t, []string{"node", "/rt/npm-cli.js", "ci"}, r.ran.Args[:3])
	require.Contains(t, r.ran.Args, "--prefer-offline", "a repair needs no network for what the cache has")
	require.Equal(t, filepath.Join(dir, "project"), r.ran.Dir)
	for _, flag := range []string{
		"--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier", "--no-bin-links", "--omit=dev", "--cache=/c", "--cafile=/ca.pem",
		"--allow-git=none", "--allow-file=none", "--allow-directory=none",
		"--registry=https://registry.example/", "--userconfig=" + filepath.Join(dir, "user.npmrc"), "--globalconfig=" + filepath.Join(dir, "global.npmrc"),
	} {
		require.Contains(t, r.ran.Args, flag)
	}
	var names []string
	for _, e := range r.ran.Env {
		n, v, _ := strings.Cut(e, "=")
		names = append(names, n)
		if n == "PATH" {
			require.Empty(t, v)
		}
	}
	slices.Sort(names)
	require.Equal(t, []string{"HOME", "HTTPS_PROXY", "HTTP_PROXY", "NODE_DISABLE_COMPILE_CACHE", "PATH", "TEMP", "TMP", "TMPDIR", "USERPROFILE"}, names)
	require.NotContains(t, strings.Join(r.ran.Args, " "), "proxy.example", "a proxy's address may hold a password")
}

func TestToolFails(t *testing.T) {
	t.Parallel()
	no := errors.New("exit status 1")
	r := &recorder{do: func(Command) ([]byte, error) {
		return []byte("npm error code EINTEGRITY\nnpm error \x1b[31mred\n"), no
	}}
	tool := Tool{Runner: r, Registry: Registry{Base: "https://registry.example/"}}
	err := tool.CI(t.Context(), t.TempDir(), []byte(goodLock), "hello", "1.0.0")
	require.ErrorIs(t, err, no)
	require.ErrorContains(t, err, `"code EINTEGRITY; \x1b[31mred"`)
	require.ErrorIs(t, err, ErrIntegrity)
	for out, want := range map[string]string{
		"npm warn old\nnpm error code EUSAGE\nnpm error\nnpm error `npm ci` can only install\nnpm error\nnpm error Missing: x@1 from lock file\nnpm error Usage: npm ci\n": "\"code EUSAGE; `npm ci` can only install; Missing: x@1 from lock file\"",
		"node: not found\nat all\n": `"node: not found; at all"`,
		"":                          "",
	} {
		require.Equal(t, want, strings.TrimPrefix(lastWords([]byte(out)), ": "))
	}
	other := Tool{Registry: tool.Registry, Runner: &recorder{do: func(Command) ([]byte, error) {
		return []byte("npm error code E404\nnpm error 404 code EINTEGRITY\n"), no
	}}}
	require.NotErrorIs(t, other.CI(t.Context(), t.TempDir(), []byte(goodLock), "hello", "1.0.0"), ErrIntegrity)
	_, err = tool.Resolve(t.Context(), t.TempDir(), "hello", "1.0.0")
	require.ErrorIs(t, err, no)
	_, err = tool.Resolve(t.Context(), t.TempDir(), "hello", "^1.0.0")
	require.ErrorContains(t, err, "one exact version")
	tool.Registry.Base = "http://registry.example"
	require.ErrorContains(t, tool.CI(t.Context(), t.TempDir(), []byte(goodLock), "hello", "1.0.0"), "https")
	for base, want := range map[string]string{
		"http://registry.example":                       `registry "http://registry.example": want`,
		"registry.example":                              `registry "registry.example": want`,
		"https://me:canary@registry.example/":           `registry "https://xxxxx@registry.example/": want`,
		"https://canary@registry.example/":              `registry "https://xxxxx@registry.example/": want`,
		"https://registry.example/?token=canary#a":      `registry "https://registry.example/?xxxxx#xxxxx": want`,
		"https://registry.example/#canary":              `registry "https://registry.example/#xxxxx": want`,
		"https://me:canary/canary@registry.example/":    "registry: want",
		"me:canary@registry.example":                    "registry: want",
		"canary@registry.example":                       "registry: want",
		"https:canary@registry.example/?":               "registry: want",
		"https://me:canary\x7f@registry.example/canary": "registry: want",
	} {
		tool.Registry.Base = base
		err := tool.CI(t.Context(), t.TempDir(), []byte(goodLock), "hello", "1.0.0")
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "canary")
	}
	tool.Registry.Base = "http://registry.example"
	tool.Runner = nil
	require.ErrorContains(t, tool.CI(t.Context(), t.TempDir(), []byte(goodLock), "hello", "1.0.0"), "no runner")
}
