package localhost

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/lendcli/lend/localhost/process"
	"github.com/lendcli/lend/localhost/route"
	"github.com/lendcli/lend/protocol/argv"
	"github.com/stretchr/testify/require"
)

func TestStartInPrivateDirectory(t *testing.T) {
	t.Parallel()
	r := newRig(t, release(t, "github", "1.0.0", "a"))
	r.reconciled(t)
	r.transport.seen = func(s process.Spec) {
		info, err := os.Lstat(s.Dir)
		require.NoError(t, err)
		require.True(t, info.IsDir())
		if runtime.GOOS != "windows" {
			require.Equal(t, os.FileMode(0o700), info.Mode().Perm())
		}
		entries, err := os.ReadDir(s.Dir)
		require.NoError(t, err)
		require.Empty(t, entries)
		require.NoError(t, os.WriteFile(filepath.Join(s.Dir, "result"), nil, 0o600))
	}
	a, err := r.Start(t.Context(), route.StartRequest{Identity: r.only(t)})
	require.NoError(t, err)
	b, err := r.Start(t.Context(), route.StartRequest{Identity: r.only(t)})
	require.NoError(t, err)
	first, second := r.transport.specs[0].Dir, r.transport.specs[1].Dir
	require.NotEqual(t, first, second, "operations do not see each other's files")
	require.NoError(t, a.Close())
	requireGone(t, first) // what was written is dropped
	require.DirExists(t, second)
	require.NoError(t, b.Close())
	requireNoOperation(t, r)
}

func pathCall(paths ...string) argv.Call {
	call := argv.Call{Arguments: []string{"read"}}
	for _, p := range paths {
		call.Arguments = append(call.Arguments, "--file="+p)
		call.Paths = append(call.Paths, argv.Path{Index: len(call.Arguments) - 1, Offset: len("--file="), Path: p})
	}
	return call
}

func TestStartInWorkspace(t *testing.T) {
	t.Parallel()
	r := newRig(t, release(t, "github", "1.0.0", "a"))
	r.reconciled(t)
	work, outside := t.TempDir(), t.TempDir()
	work, err := filepath.EvalSymlinks(work)
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(filepath.Join(work, "src", "deep"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(work, "src", "a.txt"), nil, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(outside, "secret"), nil, 0o600))
	keys := filepath.Join(t.TempDir(), "keys")
	require.NoError(t, os.MkdirAll(filepath.Join(keys, "ledger"), 0o700))
	r.workspaces = map[string]string{
		"work": work, "relative": "work", "missing": filepath.Join(work, "missing"),
		"file": filepath.Join(work, "src", "a.txt"), "private": r.root.Dir(), "above": filepath.Dir(r.root.Dir()),
		"below": filepath.Join(r.root.Dir(), "operations"), "empty": "",
		"keys": keys, "above-keys": filepath.Dir(keys), "below-keys": filepath.Join(keys, "ledger"),
	}
	r.cfg.Private = []string{filepath.Join(work, "missing"), keys}
	start := func(workspace string, call argv.Call) error {
		p, err := r.Start(t.Context(), route.StartRequest{Identity: r.only(t), Workspace: workspace, Call: call})
		if err != nil {
			return err
		}
		return p.Close()
	}

	require.NoError(t, start("work", pathCall("src/a.txt", "src/deep/../a.txt", "new.txt", "src/new/file", ".")))
	require.Equal(t, work, r.transport.specs[0].Dir)
	require.DirExists(t, work, "a workspace is not dropped")
	for _, place := range []string{"", placeOf(work)} {
		p, err := r.Start(t.Context(), route.StartRequest{Identity: r.only(t), Workspace: "work", Place: place, Call: argv.Call{}})
		require.NoError(t, err)
		require.NoError(t, p.Close())
	}
	n := r.transport.started()
	for _, other := range []string{placeOf(outside), strings.ToUpper(placeOf(work)), "x"} {
		_, err := r.Start(t.Context(), route.StartRequest{Identity: r.only(t), Workspace: "work", Place: other, Call: argv.Call{}})
		require.ErrorIs(t, err, route.ErrIdentityMismatch, "the name leads elsewhere than was decided")
	}

	for what, path := range map[string]string{
		"parent": "../x", "dot-dot": "..", "hidden-parent": "src/../../x", "absolute": filepath.ToSlash(filepath.Join(outside, "secret")),
		"empty": "", "nul": "a\x00b",
	} {
		require.ErrorIs(t, start("work", pathCall(path)), route.ErrInvalid, what)
	}
	if runtime.GOOS != "windows" {
		for link, target := range map[string]string{
			"out-dir": outside, "out-file": filepath.Join(outside, "secret"), "up": "../" + filepath.Base(outside),
			"dangling": filepath.Join(outside, "not-there-yet"), "dangling-up": "../nowhere", "src/deep/up": "../../../x",
			"loop": "loop",
		} {
			require.NoError(t, os.Symlink(target, filepath.Join(work, link)))
			require.ErrorIs(t, start("work", pathCall(link)), route.ErrInvalid, link)
			require.ErrorIs(t, start("work", pathCall(link+"/secret")), route.ErrInvalid, link)
		}
		require.NoError(t, os.Symlink("src/a.txt", filepath.Join(work, "inside")))
		require.NoError(t, start("work", pathCall("inside")), "a link that stays inside")
		n++
		link := filepath.Join(t.TempDir(), "link")
		require.NoError(t, os.Symlink(work, link))
		r.workspaces["link"] = link
		require.ErrorIs(t, start("link", argv.Call{}), route.ErrUnavailable)
	}

	for what, call := range map[string]argv.Call{
		"index-too-large":  {Arguments: []string{"a"}, Paths: []argv.Path{{Index: 1, Path: "a"}}},
		"negative-index":   {Arguments: []string{"a"}, Paths: []argv.Path{{Index: -1, Path: "a"}}},
		"offset-too-large": {Arguments: []string{"a"}, Paths: []argv.Path{{Offset: 2, Path: "a"}}},
		"negative-offset":  {Arguments: []string{"a"}, Paths: []argv.Path{{Offset: -1, Path: "a"}}},
		"another-text":     {Arguments: []string{"../x"}, Paths: []argv.Path{{Path: "x"}}},
		"longer-than-said": {Arguments: []string{"a/../../x"}, Paths: []argv.Path{{Path: "a"}}},
	} {
		require.ErrorIs(t, start("work", call), route.ErrInvalid, what)
	}
	for _, workspace := range []string{"unknown", "relative", "missing", "file", "private", "above", "below", "empty", "keys", "above-keys", "below-keys"} {
		require.ErrorIs(t, start(workspace, argv.Call{}), route.ErrUnavailable, workspace)
	}
	require.ErrorIs(t, start("", pathCall("a.txt")), route.ErrInvalid, "a path without a workspace")
	r.cfg.Workspaces = nil
	require.ErrorIs(t, start("work", argv.Call{}), route.ErrUnavailable)
	require.Equal(t, n, r.transport.started(), "nothing refused was started")
}

// placeOf is how a decision names a directory.
func placeOf(path string) string {
	sum := sha256.Sum256([]byte(path))
	return hex.EncodeToString(sum[:])
}
