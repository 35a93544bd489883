package localhost

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/localhost/process"
	"github.com/lendcli/lend/localhost/route"
	"github.com/lendcli/lend/protocol/argv"
)

func TestPathsArePassedWithoutLinks(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("links are of unix")
	}
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	require.NoError(t, err)
	defer func() { _ = root.Close() }()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "src", "deep"), 0o700))
	for _, f := range []string{"src/a.txt", "-rf", "x,y"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, f), nil, 0o600))
	}
	for link, target := range map[string]string{
		"file": "src/a.txt", "dir": "src", "src/deep/up": "../a.txt", "twice": "dir/deep", "dot": ".", "back": "src/deep/..",
		"option": "-rf", "list": "x,y", "loop": "loop", "out": "..", "absolute": dir, "hidden": "src/../..", "new": "src/new",
	} {
		require.NoError(t, os.Symlink(target, filepath.Join(dir, link)))
	}
	for path, want := range map[string]string{
		"src/a.txt": "src/a.txt", "src/deep/../a.txt": "src/deep/../a.txt", ".": ".", "no/such/file": "no/such/file", "-rf": "-rf", "x,y": "x,y",
		"file": "src/a.txt", "dir/a.txt": "src/a.txt", "dir/deep/up": "src/a.txt", "twice/up": "src/a.txt", "dot": ".", "back/a.txt": "src/a.txt",
		"dir/new": "src/new", "twice/../a.txt": "src/a.txt", "new": "src/new",
	} {
		got, err := canonical(root, path)
		require.NoError(t, err, path)
		require.Equal(t, want, got, path)
	}
	for _, path := range []string{"option", "list", "loop", "out", "absolute", "absolute/src", "hidden", "out/x", "dir/../../x", "", "a\x00b", "../x", "/etc"} {
		_, err := canonical(root, path)
		require.ErrorIs(t, err, route.ErrInvalid, path)
	}

	call := argv.Call{Arguments: []string{"cat", "--in=file,dir/a.txt,src/a.txt", "twice/up"}, Paths: []argv.Path{
		{Index: 1, Offset: 5, Path: "file"}, {Index: 1, Offset: 10, Path: "dir/a.txt"}, {Index: 1, Offset: 20, Path: "src/a.txt"}, {Index: 2, Path: "twice/up"},
	}}
	args, err := resolved(root, call)
	require.NoError(t, err)
	require.Equal(t, []string{"cat", "--in=src/a.txt,src/a.txt,src/a.txt", "src/a.txt"}, args)
	require.Equal(t, "twice/up", call.Arguments[2], "the call stays as it was authorised")
	call.Paths = append(call.Paths, call.Paths[0])
	_, err = resolved(root, call)
	require.ErrorIs(t, err, route.ErrInvalid, "one place twice")
}

// TestFlippingLink: a link that somebody turns inside and out again and again. What a
// start passes on leads through no link, so that it lies in the workspace whichever way the
// link points when the CLI opens it.
func TestFlippingLink(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("links are of unix")
	}
	r := newRig(t, release(t, "github", "1.0.0", "a"))
	r.reconciled(t)
	work, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	outside := t.TempDir()
	for _, f := range []string{filepath.Join(work, "in", "file"), filepath.Join(outside, "file")} {
		require.NoError(t, os.MkdirAll(filepath.Dir(f), 0o700))
		require.NoError(t, os.WriteFile(f, []byte(filepath.Dir(f)), 0o600))
	}
	r.workspaces = map[string]string{"work": work}
	link := filepath.Join(work, "link")
	require.NoError(t, os.Symlink("in", link))
	r.transport.seen = func(s process.Spec) {
		path := strings.TrimPrefix(s.Args[len(s.Args)-1], "--file=")
		require.Equal(t, "in/file", path)
		for range 20 { // as late and as often as a CLI may
			data, err := os.ReadFile(filepath.Join(s.Dir, path))
			require.NoError(t, err)
			require.Equal(t, filepath.Join(work, "in"), string(data))
		}
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default:
			}
			next := link + ".next"
			if err := errors.Join(os.Symlink([]string{outside, "in"}[i%2], next), os.Rename(next, link)); err != nil {
				t.Error(err)
				return
			}
		}
	})
	started, refused := 0, 0
	for range 300 {
		p, err := r.Start(t.Context(), route.StartRequest{Identity: r.only(t), Workspace: "work", Call: pathCall("link/file")})
		if err != nil {
			require.ErrorIs(t, err, route.ErrInvalid)
			refused++
			continue
		}
		started++
		require.NoError(t, p.Close())
	}
	close(done)
	wg.Wait()
	t.Logf("%d started, %d refused", started, refused)

	// Without luck: it points inside when it is looked at, and out when it is used.
	turn := func(target string) {
		require.NoError(t, os.Remove(link))
		require.NoError(t, os.Symlink(target, link))
	}
	turn("in")
	look := r.transport.seen
	r.transport.seen = func(s process.Spec) {
		turn(outside)
		look(s)
	}
	p, err := r.Start(t.Context(), route.StartRequest{Identity: r.only(t), Workspace: "work", Call: pathCall("link/file")})
	require.NoError(t, err)
	require.NoError(t, p.Close())
}
