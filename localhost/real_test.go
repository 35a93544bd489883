//go:build unix

package localhost

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lendcli/lend/localhost/connection"
	"github.com/lendcli/lend/localhost/install"
	"github.com/lendcli/lend/localhost/process"
	"github.com/lendcli/lend/localhost/route"
	"github.com/lendcli/lend/localhost/sealed"
	"github.com/lendcli/lend/protocol/argv"
	"github.com/stretchr/testify/require"
)

const fixtureManifest = `{
  "schemaVersion": "1", "key": "fixture", "version": "1.0.0", "displayName": "Fixture",
  "cli": {
    "command": "fixture", "kind": "native", "entrypoint": "bin/fixture",
    "arguments": ["fixture"], "environment": ["FX_VALUE"]
  },
  "secrets": [{"name": "token", "env": "FX_TOKEN", "description": "a token"}]
}`

// realHost is a host on the real store and transport, with the fixture installed.
type realHost struct {
	*Host
	store     *install.Store
	account   *connection.Connection
	workspace string
	installed string // the root of the store
}

func newRealHost(t *testing.T) *realHost {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	source := filepath.Join(base, "source")
	require.NoError(t, os.MkdirAll(filepath.Join(source, "bin"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(source, "connector-manifest.json"), []byte(fixtureManifest), 0o600))
	self, err := os.Executable()
	require.NoError(t, err)
	b, err := os.ReadFile(self)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(source, "bin", "fixture"), b, 0o700))

	h := &realHost{workspace: filepath.Join(base, "workspace"), installed: filepath.Join(base, "install")}
	require.NoError(t, os.Mkdir(h.workspace, 0o700))
	h.store, err = install.Open(install.Config{Dir: h.installed})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, h.store.Close()) })
	_, err = h.store.Add(t.Context(), install.Source{Path: source}, nil)
	require.NoError(t, err)

	root, err := connection.Open(filepath.Join(base, "connections"))
	require.NoError(t, err)
	require.NoError(t, root.Sealed().Create(sealed.Source{Kind: sealed.KeyFile}))
	h.account, err = root.Create(connectorKey(t, "fixture"), connectionID(t, "default"))
	require.NoError(t, err)
	transport := process.New(process.Config{Idle: 1})
	t.Cleanup(func() { require.NoError(t, transport.Close()) })
	h.Host, err = New(Config{
		Store: h.store, Transport: transport, Connections: root,
		Workspaces: func(name string) (string, bool) { return h.workspace, name == "work" },
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, h.Close()) })
	_, err = h.Reconcile(t.Context())
	require.NoError(t, err)
	return h
}

func (h *realHost) start(t *testing.T, r route.StartRequest, args ...string) (route.Process, error) {
	t.Helper()
	all := h.current()
	require.Len(t, all, 1)
	r.Identity = all[0].Identity
	r.Call.Arguments = append(slices.Clone(all[0].Contract.Arguments), args...)
	return h.Start(t.Context(), r)
}

// run runs the fixture to its end.
func (h *realHost) run(t *testing.T, r route.StartRequest, stdin string, args ...string) (string, route.Exit) {
	t.Helper()
	r.Stdin = stdin != ""
	p, err := h.start(t, r, args...)
	require.NoError(t, err)
	if r.Stdin {
		_, err = io.WriteString(p.Stdin(), stdin)
		require.NoError(t, err)
		require.NoError(t, p.Stdin().Close())
	}
	out, err := io.ReadAll(p.Stdout())
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	e, err := p.Wait(ctx)
	require.NoError(t, err)
	require.NoError(t, p.Close())
	return string(out), e
}

func TestRealProcess(t *testing.T) {
	t.Parallel()
	h := newRealHost(t)
	declared := connection.Declared{Secrets: []connection.Declaration{{Name: "token", Variable: "FX_TOKEN"}}}
	require.NoError(t, h.account.SetSecret(declared, label(t, "token"), "", strings.NewReader("s3cret\n")))

	out, e := h.run(t, route.StartRequest{Workspace: "work", Call: argv.Call{
		Environment: []argv.Variable{{Name: "FX_VALUE", Value: "a b"}},
	}}, "", "show", "one", "")
	require.Zero(t, e.Code)
	own := homeOf(t, strings.Split(out, "\n"))
	require.Equal(t, strings.Join([]string{
		"dir=" + h.workspace + " <nil>",
		`args=["one" ""]`,
		"FX_TOKEN=s3cret",
		"FX_VALUE=a b",
		"HOME=" + own.Home,
		"LC_CTYPE=C.UTF-8",
		"NO_COLOR=1",
		"PATH=/dev/null",
		"TERM=dumb",
		"TMPDIR=" + own.Temp,
		"TZ=UTC",
		"XDG_STATE_HOME=" + own.State,
		"",
	}, "\n"), out, "the whole environment of the child")

	out, e = h.run(t, route.StartRequest{}, "through the pipe", "copy")
	require.Equal(t, "through the pipe", out)
	require.Equal(t, 7, e.Code)

	require.NoError(t, os.WriteFile(filepath.Join(h.workspace, "file"), []byte("content"), 0o600))
	out, _ = h.run(t, route.StartRequest{Workspace: "work"}, "", "read", "file")
	require.Equal(t, "content", out, "relative to the workspace")
	_, e = h.run(t, route.StartRequest{}, "", "read", "file")
	require.Equal(t, 2, e.Code, "a private directory is empty")
	_, e = h.run(t, route.StartRequest{}, "", "write", "left")
	require.Zero(t, e.Code)
	for _, anywhere := range []string{"left", filepath.Join("*", "*")} { // beside, and in, what is made ahead
		require.Eventually(t, func() bool {
			left, err := filepath.Glob(filepath.Join(h.cfg.Connections.Dir(), "operations", "*", "*", anywhere))
			return err == nil && len(left) == 0
		}, 30*time.Second, time.Millisecond, "what a command wrote is dropped")
	}
}

func TestRealRetirement(t *testing.T) {
	t.Parallel()
	h := newRealHost(t)
	p, err := h.start(t, route.StartRequest{}, "sleep")
	require.NoError(t, err)
	var pid int
	_, err = fmt.Fscanln(p.Stdout(), &pid)
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(pid, 0))

	require.NoError(t, h.store.Remove(t.Context(), connectorKey(t, "fixture"), version(t, "1.0.0")))
	receipts, err := h.Reconcile(t.Context(), connectorKey(t, "fixture"))
	require.NoError(t, err)
	require.Equal(t, []string{"fixture@1.0.0 default retired"}, states(receipts))
	require.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH)
	e, err := p.Wait(t.Context())
	require.NoError(t, err)
	require.True(t, e.Retired)
	require.Equal(t, "SIGTERM", e.Signal)
	require.NoError(t, p.Close())
}

// One byte of the installed executable is changed, keeping size and times: nothing
// runs, and the cause is the owner's.
func TestRealTampering(t *testing.T) {
	t.Parallel()
	h := newRealHost(t)
	h.run(t, route.StartRequest{Workspace: "work"}, "", "write", "before")
	require.FileExists(t, filepath.Join(h.workspace, "before"))

	h.tamper(t)

	_, err := h.start(t, route.StartRequest{Workspace: "work"}, "write", "after")
	require.ErrorIs(t, err, route.ErrUnavailable)
	require.ErrorIs(t, err, install.ErrTampered)
	require.NoFileExists(t, filepath.Join(h.workspace, "after"))
	_, err = h.Reconcile(t.Context())
	require.ErrorIs(t, err, install.ErrTampered)
	require.Empty(t, h.current(), "a damaged release has no route")
}

// tamper changes the last byte of the installed executable, keeping size and times.
func (h *realHost) tamper(t *testing.T) {
	t.Helper()
	found := 0
	require.NoError(t, filepath.WalkDir(h.installed, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() != "fixture" {
			return err
		}
		found++
		info, err := d.Info()
		require.NoError(t, err)
		require.NoError(t, os.Chmod(path, 0o700))
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		require.NoError(t, err)
		last := make([]byte, 1)
		_, err = f.ReadAt(last, info.Size()-1)
		require.NoError(t, err)
		_, err = f.WriteAt([]byte{last[0] ^ 1}, info.Size()-1)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		require.NoError(t, os.Chmod(path, info.Mode().Perm()))
		return os.Chtimes(path, info.ModTime(), info.ModTime())
	}))
	require.Positive(t, found)
}
