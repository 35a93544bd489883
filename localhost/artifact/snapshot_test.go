package artifact

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func snapshot(t *testing.T) *Snapshot {
	t.Helper()
	s, err := importTree(t, writeDir(t, file{"bin/tool", "#!x", 0o755}, file{"lib/a.js", "content", 0}, file{"lib/b.js", "other", 0}), Options{})
	require.NoError(t, err)
	require.NoError(t, s.Verify())
	return s
}

// rewrite changes a file in place, as its owner can, and puts its times back.
func rewrite(t *testing.T, p, body string) {
	t.Helper()
	info, err := os.Stat(p)
	require.NoError(t, err)
	require.NoError(t, os.Chmod(p, 0o600))
	require.NoError(t, os.WriteFile(p, []byte(body), 0o600))
	require.NoError(t, os.Chmod(p, info.Mode()))
	require.NoError(t, os.Chtimes(p, info.ModTime(), info.ModTime()))
}

func rewritten(p, body string) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		t.Helper()
		rewrite(t, filepath.Join(dir, p), body)
	}
}

func chmodded(p string, mode fs.FileMode) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		t.Helper()
		require.NoError(t, os.Chmod(filepath.Join(dir, p), mode))
	}
}

// unlock makes a directory writable for the change and read-only after it.
func unlock(t *testing.T, dir string, change func()) {
	t.Helper()
	require.NoError(t, os.Chmod(dir, 0o700))
	change()
	require.NoError(t, os.Chmod(dir, 0o500))
}

func TestVerifySeesChanges(t *testing.T) {
	t.Parallel()
	for n, c := range map[string]struct {
		change func(t *testing.T, dir string)
		want   string
	}{
		"one-byte-same-times": {rewritten("lib/a.js", "c0ntent"), "content changed"},
		"executable":          {rewritten("bin/tool", "#!y"), "content changed"},
		"longer":              {rewritten("lib/a.js", "content+"), "size changed"},
		"mode":                {chmodded("lib/a.js", 0o500), "mode"},
		"writable":            {chmodded("lib/a.js", 0o600), "mode"},
		"directory-mode":      {chmodded("lib", 0o700), "mode"},
		"root-mode":           {chmodded(".", 0o700), "mode"},
		"extra-file": {func(t *testing.T, dir string) {
			t.Helper()
			unlock(t, filepath.Join(dir, "lib"), func() {
				require.NoError(t, os.WriteFile(filepath.Join(dir, "lib/c.js"), []byte("x"), 0o400))
			})
		}, "added or removed"},
		"extra-at-root": {func(t *testing.T, dir string) {
			t.Helper()
			unlock(t, dir, func() { require.NoError(t, os.Mkdir(filepath.Join(dir, "node_modules"), 0o500)) })
		}, "added or removed"},
		"missing-file": {func(t *testing.T, dir string) {
			t.Helper()
			unlock(t, filepath.Join(dir, "lib"), func() { require.NoError(t, os.Remove(filepath.Join(dir, "lib/b.js"))) })
		}, "added or removed"},
		"symlink": {func(t *testing.T, dir string) {
			t.Helper()
			unlock(t, filepath.Join(dir, "lib"), func() {
				p := filepath.Join(dir, "lib/b.js")
				require.NoError(t, os.Rename(p, p+".new"))
				require.NoError(t, os.Symlink("b.js.new", p))
			})
		}, "snapshot changed"},
		"renamed-over": {func(t *testing.T, dir string) {
			t.Helper()
			unlock(t, filepath.Join(dir, "lib"), func() {
				p := filepath.Join(dir, "lib/x")
				require.NoError(t, os.WriteFile(p, []byte("c0ntent"), 0o400))
				require.NoError(t, os.Rename(p, filepath.Join(dir, "lib/a.js")))
			})
		}, "content changed"},
		"gone": {func(t *testing.T, dir string) {
			t.Helper()
			unlock(t, filepath.Dir(dir), func() {})
			require.NoError(t, os.Chmod(filepath.Dir(dir), 0o700))
			require.NoError(t, os.Rename(dir, dir+".gone"))
		}, "cannot be read"},
	} {
		t.Run(n, func(t *testing.T) {
			t.Parallel()
			s := snapshot(t)
			c.change(t, s.Dir())
			err := s.Verify()
			var ce *ChangedError
			require.ErrorAs(t, err, &ce)
			require.ErrorContains(t, err, c.want)
			require.NotContains(t, err.Error(), s.Dir(), "paths of this machine stay out of errors")
			require.Error(t, s.Verify(), "it stays refused")
		})
	}
}

// A large tree is looked at in parts, none of which is left out; and it must still be in
// its place when all was looked at.
func TestVerifySeesChangesOfLargeTrees(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "tree")
	require.NoError(t, os.Mkdir(dir, 0o700))
	const files = 3 * severalFrom
	for i := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("%04d", i)), []byte("good"), 0o400))
	}
	require.NoError(t, os.Chmod(dir, 0o500))
	t.Cleanup(func() { _ = os.Chmod(dir, 0o700) })
	s, err := Open(dir, ConnectorLimits())
	require.NoError(t, err)
	require.NoError(t, s.Verify())
	for i := 0; i < files; i += files / 12 {
		p := filepath.Join(dir, fmt.Sprintf("%04d", i))
		write := func(content string) {
			require.NoError(t, os.Chmod(p, 0o600))
			require.NoError(t, os.WriteFile(p, []byte(content), 0o600))
			require.NoError(t, os.Chmod(p, 0o400))
		}
		write("evil")
		require.ErrorContains(t, s.Verify(), fmt.Sprintf("%04d", i))
		write("good")
		require.NoError(t, s.Verify())
	}
	s.looked = func() {
		require.NoError(t, os.Rename(dir, dir+".good"))
		require.NoError(t, os.Mkdir(dir, 0o500))
	}
	if runtime.GOOS != "windows" {
		require.ErrorContains(t, s.Verify(), "replaced while it was looked at")
		require.NoError(t, os.Chmod(dir+".good", 0o700))
	}
}

func TestVerifyForgivesTouches(t *testing.T) {
	t.Parallel()
	s := snapshot(t)
	p := filepath.Join(s.Dir(), "lib", "a.js")
	later := time.Now().Add(time.Hour)
	require.NoError(t, os.Chtimes(p, later, later))
	require.NoError(t, os.Chtimes(filepath.Join(s.Dir(), "lib"), later, later))
	require.NoError(t, s.Verify(), "the content is the same")
	id, err := identityOf(p)
	require.NoError(t, err)
	require.Equal(t, id, s.entries[s.at["lib/a.js"]].id, "the new identity is remembered")

	unlock(t, filepath.Join(s.Dir(), "lib"), func() {
		require.NoError(t, os.WriteFile(p+".new", []byte("content"), 0o400))
		require.NoError(t, os.Rename(p+".new", p))
	})
	require.NoError(t, s.Verify(), "another inode with the same content")
	rewrite(t, p, "c0ntent")
	require.Error(t, s.Verify())
}

func TestVerifyIsConcurrent(t *testing.T) {
	t.Parallel()
	s := snapshot(t)
	later := time.Now().Add(time.Hour)
	require.NoError(t, os.Chtimes(filepath.Join(s.Dir(), "lib", "a.js"), later, later))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := s.Verify(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	for n, change := range map[string]func(t *testing.T, dir string){
		"writable-file":  chmodded("bin/tool", 0o700),
		"group-readable": chmodded("bin/tool", 0o440),
		"setuid": func(t *testing.T, dir string) {
			t.Helper()
			require.NoError(t, os.Chmod(filepath.Join(dir, "bin/tool"), 0o500|fs.ModeSetuid))
		},
		"writable-directory": chmodded("bin", 0o700),
		"symlink": func(t *testing.T, dir string) {
			t.Helper()
			unlock(t, dir, func() { require.NoError(t, os.Symlink("bin/tool", filepath.Join(dir, "tool"))) })
		},
	} {
		t.Run(n, func(t *testing.T) {
			t.Parallel()
			s := snapshot(t)
			change(t, s.Dir())
			_, err := Open(s.Dir(), small())
			var ce *ChangedError
			require.ErrorAs(t, err, &ce)
		})
	}
	s := snapshot(t)
	l := small()
	l.Entries = 3
	_, err := Open(s.Dir(), l)
	require.ErrorContains(t, err, "too many entries")
	l = small()
	l.FileBytes = 4
	_, err = Open(s.Dir(), l)
	require.ErrorContains(t, err, "too large")
}

func TestOpenHashesAgain(t *testing.T) {
	t.Parallel()
	s := snapshot(t)
	rewrite(t, filepath.Join(s.Dir(), "lib", "b.js"), "0ther")
	again, err := Open(s.Dir(), small())
	require.NoError(t, err)
	require.NotEqual(t, s.Digest(), again.Digest())
}

func TestRemove(t *testing.T) {
	t.Parallel()
	s := snapshot(t)
	parent := filepath.Dir(s.Dir())
	outside := writeDir(t, file{"keep", "x", 0})
	unlock(t, s.Dir(), func() { require.NoError(t, os.Symlink(outside, filepath.Join(s.Dir(), "out"))) })
	root, err := os.OpenRoot(parent)
	require.NoError(t, err)
	defer root.Close()
	require.NoError(t, Remove(root, "tree"))
	require.NoDirExists(t, s.Dir())
	require.FileExists(t, filepath.Join(outside, "keep"), "links are not followed")
	require.NoError(t, Remove(root, "tree"), "absent is no error")
	require.Error(t, Remove(root, "../x"))
}

// TestNoTextFileBusy writes executables and starts each at once, while other
// goroutines start programs all the time: a child that still held the write
// descriptor would make the start fail with "text file busy". The files hold nothing
// that a kernel can run, which is what a start without that fault says.
func TestNoTextFileBusy(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("Linux alone refuses to run a file that is open for writing")
	}
	w, err := newWriter(t.Context(), filepath.Join(tempDir(t), "tree"), Options{Limits: Limits{Entries: 1000, FileBytes: 1000, TreeBytes: 1 << 20}})
	require.NoError(t, err)
	defer w.root.Close()
	write := func(name string) string {
		require.NoError(t, w.file(name, 7, true, strings.NewReader("nothing")))
		return filepath.Join(w.root.Name(), name)
	}
	start := func(path string) error {
		_, err := os.StartProcess(path, []string{path}, &os.ProcAttr{Files: []*os.File{nil, nil, nil}})
		return err
	}
	other := write("other")
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					_ = start(other)
				}
			}
		})
	}
	defer wg.Wait()
	defer close(done)
	for i := range 150 {
		require.ErrorIs(t, start(write(fmt.Sprintf("tool%d", i))), syscall.ENOEXEC)
	}
}

func BenchmarkVerify(b *testing.B) {
	src := b.TempDir()
	for i := range 1500 {
		if err := os.WriteFile(filepath.Join(src, fmt.Sprint(i)), []byte("x"), 0o600); err != nil {
			b.Fatal(err)
		}
	}
	dst := filepath.Join(b.TempDir(), "tree")
	if err := Import(b.Context(), src, dst, Options{Limits: ConnectorLimits()}); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = os.Chmod(dst, 0o700) })
	s, err := Open(dst, ConnectorLimits())
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if err := s.Verify(); err != nil {
			b.Fatal(err)
		}
	}
}
