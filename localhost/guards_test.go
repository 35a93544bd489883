package localhost

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/localhost/route"
	"github.com/lendcli/lend/protocol/argv"
)

// TestPathStandsWhereTheCallSays: alone or as an item of a list, at its place.
func TestPathStandsWhereTheCallSays(t *testing.T) {
	t.Parallel()
	args := []string{"read", "etc", "--files=a,b/c", "etc,passwd"}
	for title, c := range map[string]struct {
		path argv.Path
		want bool
	}{
		"alone":             {argv.Path{Index: 1, Path: "etc"}, true},
		"first-of-list":     {argv.Path{Index: 2, Offset: 8, Path: "a"}, true},
		"last-of-list":      {argv.Path{Index: 2, Offset: 10, Path: "b/c"}, true},
		"first-item":        {argv.Path{Index: 3, Path: "etc"}, true},
		"a-part":            {argv.Path{Index: 1, Path: "et"}, false},
		"another":           {argv.Path{Index: 1, Path: "usr"}, false},
		"another-at-an-end": {argv.Path{Index: 1, Offset: 3, Path: "usr"}, false},
		"another-at-a-list": {argv.Path{Index: 3, Offset: 3, Path: "usr"}, false},
		"before":            {argv.Path{Index: -1, Path: "etc"}, false},
		"behind":            {argv.Path{Index: 4, Path: "etc"}, false},
		"offset-before":     {argv.Path{Index: 1, Offset: -1, Path: "etc"}, false},
		"offset-behind":     {argv.Path{Index: 1, Offset: 4, Path: ""}, false},
	} {
		require.Equal(t, c.want, stands(args, c.path), title)
	}
}

// TestIdentityIsComparedBeforeAnythingIsMade: a start under another identity is that,
// also where no directory can be made.
func TestIdentityIsComparedBeforeAnythingIsMade(t *testing.T) {
	t.Parallel()
	r := newRig(t, release(t, "github", "1.0.0", "a"))
	r.reconciled(t)
	id := r.only(t)
	repair := r.breakOperations(t)
	later := id
	later.Generation.Number++
	for title, other := range map[string]route.Identity{"later": later, "of-nothing": {}} {
		_, err := r.Start(t.Context(), route.StartRequest{Identity: other, Workspace: "unknown"})
		require.ErrorIs(t, err, route.ErrIdentityMismatch, title)
	}
	var err error
	for range 100 { // some that were made before may be tried, and are gone
		_, err = r.Start(t.Context(), route.StartRequest{Identity: id})
		require.Error(t, err)
		if errors.Is(err, route.ErrUnavailable) {
			break
		}
	}
	require.ErrorIs(t, err, route.ErrUnavailable)
	require.ErrorContains(t, err, "make home")
	repair()
	require.Zero(t, r.transport.started())
}

// breakOperations puts a file where the directories of this host's operations are made.
func (r *rig) breakOperations(t *testing.T) (repair func()) {
	t.Helper()
	locks, err := filepath.Glob(filepath.Join(r.root.Dir(), "operations", "*.lock"))
	require.NoError(t, err)
	require.Len(t, locks, 1)
	part := locks[0][:len(locks[0])-len(".lock")]
	require.NoError(t, os.RemoveAll(part))
	require.NoError(t, os.WriteFile(part, nil, 0o600))
	return func() {
		require.NoError(t, os.Remove(part))
		require.NoError(t, os.Mkdir(part, 0o700))
	}
}

// TestWorkspaceRefusals: each says what was wrong, which is for the owner.
func TestWorkspaceRefusals(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	work, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	file := filepath.Join(work, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	open := func(path string, known bool) error {
		r.cfg.Workspaces = func(string) (string, bool) { return path, known }
		dir, _, err := r.workspace("work", "", argv.Call{})
		require.Equal(t, err == nil, dir == work)
		return err
	}
	require.NoError(t, open(work, true))
	require.NoError(t, open(work+"/./", true))
	require.ErrorIs(t, open(work, false), fs.ErrNotExist, "the owner has none of this name")
	require.ErrorIs(t, open("", false), fs.ErrNotExist)
	require.ErrorContains(t, open("", true), "path is not absolute")
	require.ErrorIs(t, open(filepath.Join(work, "none"), true), fs.ErrNotExist)
	require.ErrorContains(t, open(file, true), "not a directory")
	require.ErrorIs(t, open(file, true), route.ErrUnavailable)
	require.NoError(t, CheckWorkspace(work))
	require.ErrorIs(t, CheckWorkspace(filepath.Join(work, "none")), fs.ErrNotExist)
	require.Error(t, CheckWorkspace(work, work), "it is private")
	if runtime.GOOS != "windows" {
		link := filepath.Join(t.TempDir(), "link")
		require.NoError(t, os.Symlink(work, link))
		require.ErrorContains(t, open(link, true), "not a directory")
		r.cfg.Private = []string{filepath.Join(file, "keys")}
		require.ErrorIs(t, open(work, true), syscall.ENOTDIR, "what is private cannot be found")
	}
}

func TestWhatCannotBeToldIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.True(t, isDirectory(dir))
	require.False(t, isDirectory(filepath.Join(dir, "none")))
	require.True(t, contains(dir, filepath.Join(dir, "a")))
	require.False(t, contains(filepath.Join(dir, "a"), dir))
	require.True(t, contains(dir, "relative"), "nobody knows where that is")
}

// brokenLinks are links that cannot be read, after some that can.
type brokenLinks struct {
	fs.FileInfo
	target string
	good   int
	read   int
}

func (b *brokenLinks) Lstat(string) (fs.FileInfo, error) { return b, nil }
func (b *brokenLinks) Mode() fs.FileMode                 { return fs.ModeSymlink }

func (b *brokenLinks) Readlink(string) (string, error) {
	if b.read++; b.read > b.good {
		return "", fs.ErrInvalid
	}
	return b.target, nil
}

// TestEachStepOfAPathIsLookedAt, whatever was found when the system went the whole way.
func TestEachStepOfAPathIsLookedAt(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("links are of unix")
	}
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	require.NoError(t, err)
	defer func() { _ = root.Close() }()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	for link, target := range map[string]string{"up": "../x", "late": "none/../../x", "absolute": "/none", "twice": "file/x", "good": "file"} {
		require.NoError(t, os.Symlink(target, filepath.Join(dir, link)))
	}
	for path, want := range map[string]error{"up": errLinkOut, "late": errLinkOut, "absolute": errLinkOut, "twice": errLinkLost, "good": nil} {
		got, err := along(root, path)
		require.ErrorIs(t, err, want, path)
		require.Equal(t, want == nil, got == "file", path)
	}
	for path, want := range map[string]error{"../x": errNotLocal, "file\x00": errNotLocal, "up": errLeadsOut, "good": nil} {
		_, err := canonical(root, path)
		require.ErrorIs(t, err, want, path)
	}

	broken := &brokenLinks{}
	_, err = along(broken, "a")
	require.ErrorIs(t, err, errLinkLost)
	loop := &brokenLinks{target: "a", good: 10 * maxLinks}
	_, err = along(loop, "a")
	require.ErrorIs(t, err, errLinkLost)
	require.Equal(t, maxLinks+1, loop.read)
}
