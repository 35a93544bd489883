package policyfile

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/policy"
)

// home is a directory with a policy file that is watched for real.
type home struct {
	*heard
	t    *testing.T
	dir  string
	file string
	w    *Watcher
}

// newHome watches the file that place makes in a directory.
func newHome(t *testing.T, place func(dir string) string, edit ...func(*Config)) *home {
	t.Helper()
	h := &home{heard: newHeard(), t: t, dir: t.TempDir()}
	h.file = place(h.dir)
	cfg := config(h.heard, h.read, zerolog.Nop())
	cfg.File, cfg.Settle, cfg.Poll = h.file, 50*time.Millisecond, time.Hour // what is seen was notified
	for _, e := range edit {
		e(&cfg)
	}
	h.w = New(cfg)
	t.Cleanup(func() { require.NoError(t, h.w.Close()) })
	h.await(t, "policy.loaded")
	h.settle()
	return h
}

// settle returns when the first look is over: from then on changes are noticed.
func (h *home) settle() {
	h.t.Helper()
	require.Eventually(h.t, func() bool {
		h.w.Check()
		return h.w.looks.Load() > 2
	}, 10*time.Second, 5*time.Millisecond)
	require.Empty(h.t, h.take())
}

// read is strict about the mode, as the owner's reader is.
func (h *home) read() ([]byte, error) {
	info, err := os.Stat(h.file)
	if err == nil && (info.Mode().Perm()&0o022 != 0 || !info.Mode().IsRegular()) {
		err = errUnsafe
	}
	if err != nil {
		return nil, err
	}
	return os.ReadFile(h.file)
}

func (h *home) put(path, text string) {
	h.t.Helper()
	require.NoError(h.t, os.WriteFile(filepath.Join(h.dir, path), []byte(text), 0o600))
}

func (h *home) rename(from, to string) {
	h.t.Helper()
	require.NoError(h.t, os.Rename(filepath.Join(h.dir, from), filepath.Join(h.dir, to)))
}

func (h *home) remove(path string) {
	h.t.Helper()
	require.NoError(h.t, os.RemoveAll(filepath.Join(h.dir, path)))
}

func (h *home) link(target, path string) {
	h.t.Helper()
	require.NoError(h.t, os.Symlink(target, filepath.Join(h.dir, path)))
}

func write(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

// What really happens to files, and what comes of it.
func TestFiles(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("the events of other systems differ; they are polled, too")
	}
	plain := func(dir string) string {
		write(t, filepath.Join(dir, "policy.yaml"), good(1))
		return filepath.Join(dir, "policy.yaml")
	}
	below := func(dir string) string {
		write(t, filepath.Join(dir, "etc/policy.yaml"), good(1))
		return filepath.Join(dir, "etc/policy.yaml")
	}
	linked := func(dir string) string {
		write(t, filepath.Join(dir, "real/policy.yaml"), good(1))
		require.NoError(t, os.Symlink("real/policy.yaml", filepath.Join(dir, "policy.yaml")))
		return filepath.Join(dir, "policy.yaml")
	}
	mounted := func(dir string) string { // as Kubernetes does
		write(t, filepath.Join(dir, "..1/policy.yaml"), good(1))
		require.NoError(t, os.Symlink("..1", filepath.Join(dir, "..data")))
		require.NoError(t, os.Symlink("..data/policy.yaml", filepath.Join(dir, "policy.yaml")))
		return filepath.Join(dir, "policy.yaml")
	}
	type step struct {
		do   func(*home)
		want string
	}
	for label, c := range map[string]struct {
		place func(string) string
		steps []step
	}{
		"written in place": {plain, []step{
			{func(h *home) { h.put("policy.yaml", good(2)) }, "reload"},
			{func(h *home) { h.put("policy.yaml", good(3)) }, "reload"},
		}},
		"renamed over": {plain, []step{
			{func(h *home) { h.put("new", good(2)); h.rename("new", "policy.yaml") }, "reload"},
			{func(h *home) { h.put("new", good(3)); h.rename("new", "policy.yaml") }, "reload"},
		}},
		"vim: backup by renaming": {plain, []step{
			{func(h *home) {
				h.put("4913", "") // does the directory take files?
				h.remove("4913")
				h.rename("policy.yaml", "policy.yaml~")
				h.put("policy.yaml", good(2))
				require.NoError(h.t, os.Chmod(h.file, 0o600))
				h.remove("policy.yaml~")
			}, "reload"},
		}},
		"emacs: lock, auto-save, backup": {plain, []step{
			{func(h *home) {
				h.link("me@here.1:2", ".#policy.yaml")
				h.put("#policy.yaml#", good(2)[:30])
				h.rename("policy.yaml", "policy.yaml~")
				h.put("policy.yaml", good(2))
				h.remove("#policy.yaml#")
				h.remove(".#policy.yaml")
			}, "reload"},
		}},
		"removed and made again": {plain, []step{
			{func(h *home) { h.remove("policy.yaml") }, "suspend"},
			{func(h *home) { h.put("policy.yaml", good(1)) }, "reload"},
			{func(h *home) { h.put("policy.yaml", good(2)) }, "reload"},
		}},
		"truncated": {plain, []step{
			{func(h *home) { require.NoError(h.t, os.Truncate(h.file, 0)) }, "policy.rejected"},
			{func(h *home) { h.put("policy.yaml", good(1)) }, "policy.restored"},
		}},
		"a directory in its place": {plain, []step{
			{func(h *home) { h.remove("policy.yaml"); require.NoError(h.t, os.Mkdir(h.file, 0o700)) }, "policy.rejected"},
			{func(h *home) { h.remove("policy.yaml"); h.put("policy.yaml", good(2)) }, "reload"},
		}},
		"others may write it": {plain, []step{
			{func(h *home) { require.NoError(h.t, os.Chmod(h.file, 0o666)) }, "policy.rejected"},
			{func(h *home) { require.NoError(h.t, os.Chmod(h.file, 0o600)) }, "policy.restored"},
		}},
		"nobody may read it": {plain, []step{
			{func(h *home) { h.put("new", good(1)); require.NoError(h.t, os.Chmod(h.file, 0)) }, unreadable()},
		}},
		"its directory is renamed away": {below, []step{
			{func(h *home) { h.rename("etc", "old") }, "suspend"},
			{func(h *home) { h.rename("old", "etc") }, "reload"},
			{func(h *home) { h.put("etc/policy.yaml", good(2)) }, "reload"},
		}},
		"its directory is replaced": {below, []step{
			{func(h *home) {
				write(h.t, filepath.Join(h.dir, "new/policy.yaml"), good(2))
				h.rename("etc", "old")
				h.rename("new", "etc")
			}, "reload"},
			{func(h *home) { h.put("etc/policy.yaml", good(3)) }, "reload"},
			{func(h *home) { h.put("old/policy.yaml", good(4)) }, ""},
		}},
		"its directory is removed and made again": {below, []step{
			{func(h *home) { h.remove("etc") }, "suspend"},
			{func(h *home) { write(h.t, h.file, good(2)) }, "reload"},
		}},
		"the target of a link is written": {linked, []step{
			{func(h *home) { h.put("real/policy.yaml", good(2)) }, "reload"},
			{func(h *home) { h.put("new", good(3)); h.rename("new", "real/policy.yaml") }, "reload"},
		}},
		"a link is swapped": {linked, []step{
			{func(h *home) {
				write(h.t, filepath.Join(h.dir, "other/policy.yaml"), good(2))
				h.link("other/policy.yaml", "new")
				h.rename("new", "policy.yaml")
			}, "reload"},
			{func(h *home) { h.put("other/policy.yaml", good(3)) }, "reload"},
			{func(h *home) { h.put("real/policy.yaml", good(4)) }, ""},
		}},
		"a link dangles": {linked, []step{
			{func(h *home) { h.remove("real") }, "suspend"},
			{func(h *home) { write(h.t, filepath.Join(h.dir, "real/policy.yaml"), good(1)) }, "reload"},
		}},
		"..data is swapped": {mounted, []step{
			{func(h *home) {
				write(h.t, filepath.Join(h.dir, "..2/policy.yaml"), good(2))
				h.link("..2", "..data_tmp")
				h.rename("..data_tmp", "..data")
				h.remove("..1")
			}, "reload"},
			{func(h *home) {
				write(h.t, filepath.Join(h.dir, "..3/policy.yaml"), good(3))
				h.link("..3", "..data_tmp")
				h.rename("..data_tmp", "..data")
				h.remove("..2")
			}, "reload"},
		}},
	} {
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			h := newHome(t, c.place)
			for i, s := range c.steps {
				before := h.w.looks.Load()
				s.do(h)
				if s.want == "" { // nobody looks there
					h.settleNothing(before)
					continue
				}
				h.await(t, s.want)
				h.rest()
				require.Empty(t, h.take(), "step %d", i+1)
			}
		})
	}
}

func unreadable() string {
	if os.Geteuid() == 0 {
		return ""
	}
	return "policy.rejected"
}

// rest waits until nothing is being looked at.
func (h *home) rest() {
	h.t.Helper()
	last := h.w.looks.Load()
	require.Eventually(h.t, func() bool {
		now := h.w.looks.Load()
		same := now == last
		last = now
		return same
	}, 10*time.Second, 200*time.Millisecond)
}

func (h *home) settleNothing(before int64) {
	h.t.Helper()
	h.rest()
	require.Empty(h.t, h.take())
	require.LessOrEqual(h.t, h.w.looks.Load()-before, int64(3))
}

// TestNoWindowOfAllow writes policies as slowly as a bad editor, in pieces that are
// often valid and sometimes wider, while others only ever read: what is in force is
// always a whole policy (threat 40).
func TestNoWindowOfAllow(t *testing.T) {
	t.Parallel()
	h := newHome(t, func(dir string) string {
		write(t, filepath.Join(dir, "policy.yaml"), good(1))
		return filepath.Join(dir, "policy.yaml")
	}, func(c *Config) { c.Settle, c.Poll = 30*time.Millisecond, 5*time.Millisecond })
	ctx, stop := context.WithCancel(context.Background())
	var load sync.WaitGroup
	for range 4 {
		load.Go(func() {
			for ctx.Err() == nil {
				h.w.Check()
				_ = h.w.Status()
				_, _ = os.ReadFile(h.file)
				runtime.Gosched()
			}
		})
	}
	whole := map[string]bool{must(policy.Parse(h.file, []byte(good(1)))).Digest(): true}
	for n := range 8 {
		text := good(n+2) + "# " + strings.Repeat("x", 500) + "\n"
		h.mu.Lock()
		whole[must(policy.Parse(h.file, []byte(text))).Digest()] = true
		h.mu.Unlock()
		f, err := os.OpenFile(h.file, os.O_WRONLY|os.O_TRUNC, 0)
		require.NoError(t, err)
		for rest := text; rest != ""; {
			size := min(len(rest), 97)
			_, err = io.WriteString(f, rest[:size])
			require.NoError(t, err)
			require.NoError(t, f.Sync())
			rest = rest[size:]
			if size%2 == 1 && leases(t) { // slower than Settle, with the file open
				pause := time.NewTimer(2 * h.w.cfg.Settle)
				<-pause.C
			}
		}
		require.NoError(t, f.Close())
		want := must(policy.Parse(h.file, []byte(text))).Digest()
		require.Eventually(t, func() bool { return h.w.Status().Digest == want }, 10*time.Second, time.Millisecond)
	}
	stop()
	load.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	require.NotEmpty(t, h.in)
	for digest := range h.in {
		require.True(t, whole[digest], "a part of a policy was in force")
	}
	require.NotContains(t, h.told, "suspend")
}

// leases tells whether the file system knows who has a file open for writing.
func leases(t *testing.T) bool {
	t.Helper()
	path := filepath.Join(t.TempDir(), "open")
	f, err := os.Create(path)
	require.NoError(t, err)
	defer func() { _ = f.Close() }()
	return busy(path)
}

// A valid policy whose writer has not closed it is not taken, however long it takes.
func TestOpenForWriting(t *testing.T) {
	t.Parallel()
	if !leases(t) {
		t.Skip("the file system does not say who writes")
	}
	h := newHome(t, func(dir string) string {
		write(t, filepath.Join(dir, "policy.yaml"), good(1))
		return filepath.Join(dir, "policy.yaml")
	}, func(c *Config) { c.Settle = 20 * time.Millisecond })
	f, err := os.OpenFile(h.file, os.O_WRONLY|os.O_TRUNC, 0)
	require.NoError(t, err)
	_, err = io.WriteString(f, good(2))
	require.NoError(t, err)
	before := h.w.looks.Load()
	require.Eventually(t, func() bool { return h.w.looks.Load() > before+10 }, 10*time.Second, time.Millisecond)
	require.Empty(t, h.take())
	require.NoError(t, f.Close())
	h.await(t, "reload")
	require.False(t, busy(filepath.Join(h.dir, "absent")))
}

func TestPlaces(t *testing.T) {
	t.Parallel()
	if filepath.Separator != '/' {
		t.Skip("paths of unix")
	}
	root, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	write(t, root+"/a/b/policy.yaml", "")
	write(t, root+"/real/policy.yaml", "")
	require.NoError(t, os.Symlink("../../real/policy.yaml", root+"/a/b/link"))
	require.NoError(t, os.Symlink(root+"/a", root+"/absolute"))
	require.NoError(t, os.Symlink("loop", root+"/loop"))
	for file, want := range map[string][]string{
		"/a/b/policy.yaml":        {"/a/b"},
		"/a/b/none":               {"/a/b"},
		"/a/none/policy.yaml":     {"/a"},
		"/a/b/link":               {"/a/b", "/real"},
		"/absolute/b/policy.yaml": {"", "/a/b"},
		"/absolute/b/link":        {"", "/a/b", "/real"},
		"/loop":                   {""},
	} {
		var dirs []string
		for _, d := range places(root + file) {
			dirs = append(dirs, strings.TrimPrefix(d, root))
		}
		require.Equal(t, want, dirs, file)
	}
}

func TestCloseIsIdempotent(t *testing.T) {
	t.Parallel()
	h := newHome(t, func(dir string) string {
		write(t, filepath.Join(dir, "policy.yaml"), good(1))
		return filepath.Join(dir, "policy.yaml")
	})
	require.NoError(t, h.w.Close())
	require.NoError(t, h.w.Close())
	h.put("policy.yaml", good(2))
	h.w.Check()
	require.Empty(t, h.take())
}
