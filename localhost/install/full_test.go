package install

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lendcli/lend/localhost/install/interpreter"
	"github.com/lendcli/lend/localhost/install/npm"
	"github.com/lendcli/lend/localhost/process"
	"github.com/stretchr/testify/require"
)

// fullStore is a store that fetches from the registry that the environment names.
func fullStore(t *testing.T) *Store {
	t.Helper()
	if os.Getenv("LEND_TEST_FULL") != "1" {
		t.Skip("needs LEND_TEST_FULL=1: it fetches packages from a registry")
	}
	registry := os.Getenv("NPM_CONFIG_REGISTRY")
	require.NotEmpty(t, registry, "set NPM_CONFIG_REGISTRY")
	return openStore(t, Config{Registry: registry, CAFile: os.Getenv("SSL_CERT_FILE"), Runner: NewRunner(transport(t))})
}

func transport(t *testing.T) *process.Transport {
	t.Helper()
	p := process.New(process.Config{})
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p
}

// TestRealPackages installs real packages with the managed node and npm, runs them,
// and then changes one byte of each thing that runs.
func TestRealPackages(t *testing.T) {
	t.Parallel()
	s := fullStore(t)
	runtimes, err := s.AddNode(t.Context(), nil)
	require.NoError(t, err)
	require.Len(t, runtimes, 2)

	for _, c := range []struct {
		spec, integrity string
		args            []string
		want            string
	}{
		{
			"json5@2.2.3", "sha512-XmOWe7eyHYH14cLdVPoyg+GOH3rYX++KpzrylJwSW98t3Nk+U8XOl8FWKOgwtzdb8lXGf6zYwDUzeHMWfxasyg==",
			[]string{"--version"},
			"2.2.3\n",
		},
		{
			"semver@7.8.6", "sha512-9lpSSU4Mly3mrtruwLs1eLK6+gzbzqeBFwRNjIjE+9LuDpWdYctrQlQ3ej1Ilgi7gknpsTRnPoLP8DpCHqHIJw==",
			[]string{"-r", ">=1.0.0", "1.2.3", "0.1.0"},
			"1.2.3\n",
		},
		{
			"marked@18.2.1", "sha512-ii4bxCTCqqwpT86XZWgJNs+ZnAIZksmLGYMViWA7PDIXYIeNo1x6cDdX3JOip9NM/cI6p8z57FxliACboTruMA==",
			[]string{"--string", "*so*"},
			"<p><em>so</em></p>\n\n",
		},
		{"eslint@10.15.0", "", []string{"--version"}, "v10.15.0\n"}, // a deep tree
	} {
		dir := filepath.Join(t.TempDir(), "connector")
		m, err := s.New(t.Context(), NewConnector{From: "npm:" + c.spec, Dir: dir}, nil)
		require.NoError(t, err)
		require.Contains(t, m.CLI.Package.Integrity, c.integrity)
		lock, err := os.ReadFile(filepath.Join(dir, "package-lock.json"))
		require.NoError(t, err)
		require.NotContains(t, string(lock), "resolved", "a lock names no host")

		r, err := s.Add(t.Context(), Source{Path: dir}, nil)
		require.NoError(t, err)
		l, err := s.Launch(r)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, l.Close()) })
		require.NoError(t, l.Verify())
		out, err := s.cfg.Runner.Run(t.Context(), npm.Command{
			Path: l.Path, Env: l.Env, Dir: l.ContractDir, Args: slices.Concat([]string{"node"}, l.Prefix, c.args),
		})
		require.NoError(t, err)
		require.Equal(t, c.want, string(out))
		require.NoError(t, l.Verify(), "running leaves no trace in what is verified")
		require.NoError(t, s.Verify(t.Context(), r.Manifest.Key, r.Manifest.Version))

		again, err := s.Add(t.Context(), Source{Path: dir}, nil)
		require.NoError(t, err)
		require.Equal(t, r, again)
	}

	json5, err := s.Release(key(t, "json5"), version(t, "2.2.3"))
	require.NoError(t, err)
	l, err := s.Launch(json5)
	require.NoError(t, err)
	defer l.Close()
	flip(t, l.Prefix[0], 40)
	require.ErrorIs(t, l.Verify(), ErrTampered)
	semver, err := s.Release(key(t, "semver"), version(t, "7.8.6"))
	require.NoError(t, err)
	l2, err := s.Launch(semver)
	require.NoError(t, err)
	defer l2.Close()
	require.NoError(t, l2.Verify())
	flip(t, l2.Path, 1<<20)
	require.ErrorIs(t, l2.Verify(), ErrTampered, "the interpreter")
	require.ErrorIs(t, s.Verify(t.Context(), key(t, "semver"), version(t, "7.8.6")), ErrTampered)
}

// fullAdd drafts, installs and prepares a real package.
func fullAdd(t *testing.T, s *Store, n NewConnector) (Release, *Launch) {
	t.Helper()
	n.Dir = filepath.Join(t.TempDir(), "connector")
	_, err := s.New(t.Context(), n, nil)
	require.NoError(t, err)
	r, err := s.Add(t.Context(), Source{Path: n.Dir}, nil)
	require.NoError(t, err)
	l, err := s.Launch(r)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	require.NoError(t, l.Verify())
	return r, l
}

// TestRealNative: a package that is a program and says so nowhere, and the package
// that wraps it, of whose five optional packages a registry need not serve the
// other systems'.
func TestRealNative(t *testing.T) {
	t.Parallel()
	s := fullStore(t)
	if interpreter.Target() != "linux-x64" {
		t.Skip("the package is for linux-x64")
	}
	_, err := s.AddNode(t.Context(), nil)
	require.NoError(t, err)
	r, l := fullAdd(t, s, NewConnector{From: "npm:@stripe/cli-linux-x64@1.52.0", Native: "bin/stripe"})
	require.Equal(t, "a72c2d755d4d7b18760cc1007a7f1859a21d363dc32d1d614cd2aaa0e7b544ea", r.Manifest.CLI.SHA256)
	require.Empty(t, l.Prefix)
	env := []string{"HOME=" + t.TempDir()}
	out, err := s.cfg.Runner.Run(t.Context(), npm.Command{Path: l.Path, Args: []string{"stripe", "version"}, Env: env, Dir: t.TempDir()})
	require.NoError(t, err)
	require.Contains(t, string(out), "1.52.0")

	r, l = fullAdd(t, s, NewConnector{From: "npm:@stripe/cli@1.52.0", Key: "wrapped"})
	require.True(t, r.HasScripts)
	require.Len(t, l.Prefix, 1, "its command is a script")
	out, err = s.cfg.Runner.Run(t.Context(), npm.Command{
		Path: l.Path, Args: []string{l.Path, l.Prefix[0], "version"}, Env: slices.Concat(env, l.Env), Dir: t.TempDir(),
	})
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "1.52.0")
}

// TestRealPostinstall: esbuild's one script puts the executable of this system in
// the place of its command, which is then what is verified and started.
func TestRealPostinstall(t *testing.T) {
	t.Parallel()
	s := fullStore(t)
	_, err := s.AddNode(t.Context(), nil)
	require.NoError(t, err)
	r, l := fullAdd(t, s, NewConnector{From: "npm:esbuild@0.28.2", Postinstall: "install.js"})
	require.Empty(t, l.Prefix)
	require.Empty(t, r.Runtime)
	require.False(t, r.HasScripts)
	require.Equal(t, "bin/esbuild", filepath.ToSlash(strings.TrimPrefix(l.Path, filepath.Dir(filepath.Dir(l.Path))+string(filepath.Separator))))
	if interpreter.Target() == "linux-x64" {
		b, err := os.ReadFile(l.Path)
		require.NoError(t, err)
		require.Equal(t, "e1698a3d5c6c0798fee4fd3b5cc816651f460c63d390a7a26ea4beb0b1884100", fmt.Sprintf("%x", sha256.Sum256(b)))
	}
	p := transport(t)
	spec := func(args ...string) process.Spec {
		return process.Spec{Path: l.Path, Args: append([]string{"esbuild"}, args...), Env: []string{"HOME=" + t.TempDir()}, Dir: t.TempDir(), Stdin: true}
	}
	got, err := p.Feed(t.Context(), spec("--loader=ts"), []byte("let x: number = 1"), 1<<20)
	require.NoError(t, err)
	require.Zero(t, got.Exit.Code)
	require.Equal(t, "let x = 1;\n", string(got.Stdout))

	for _, c := range []struct {
		arg, says string
	}{{"--serve=127.0.0.1:0", "http://127.0.0.1:"}, {"--watch", "watching for changes"}} {
		q := spec("in.js", "--outfile=out.js", c.arg)
		require.NoError(t, os.WriteFile(filepath.Join(q.Dir, "in.js"), []byte("1"), 0o600))
		ctx, cancel := context.WithCancel(t.Context())
		child, err := p.Start(ctx, q)
		require.NoError(t, err)
		var said strings.Builder
		buf := make([]byte, 4096)
		for !strings.Contains(said.String(), c.says) {
			n, err := child.Stderr().Read(buf)
			require.NoError(t, err, said.String())
			said.Write(buf[:n])
		}
		require.NotEmpty(t, running(t, l.Path))
		cancel()
		require.NoError(t, child.Close())
		require.Empty(t, running(t, l.Path), c.arg)
	}
	require.NoError(t, l.Verify(), "running leaves no trace in what is verified")
}

// running lists the processes of an executable, where the system tells.
func running(t *testing.T, path string) []string {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/exe")
	require.NoError(t, err)
	var out []string
	for _, p := range all {
		if at, err := os.Readlink(p); err == nil && at == path {
			out = append(out, p)
		}
	}
	return out
}
