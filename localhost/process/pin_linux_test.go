package process

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lendcli/lend/localhost/route"
)

// programs are two executables of the same size: one exits with 0, the other with 1.
func programs(t *testing.T) (good, evil []byte) {
	t.Helper()
	good, err := os.ReadFile("/bin/true")
	require.NoError(t, err)
	evil, err = os.ReadFile("/bin/false")
	require.NoError(t, err)
	size := max(len(good), len(evil)) + 1 // what follows the last section is nobody's
	return append(good, make([]byte, size-len(good))...), append(evil, make([]byte, size-len(evil))...)
}

func writeProgram(t *testing.T, path string, b []byte) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, b, 0o700))
}

func pinOf(t *testing.T, path string) Pin {
	t.Helper()
	var st unix.Stat_t
	require.NoError(t, unix.Lstat(path, &st))
	return Pin{Device: st.Dev, Inode: st.Ino, Size: st.Size, Modified: st.Mtim.Nano(), Changed: st.Ctim.Nano()}
}

// exits starts the program and returns its exit code; -1 if nothing was started.
func exits(t *testing.T, tr *Transport, s Spec) (int, error) {
	t.Helper()
	p, err := tr.Start(t.Context(), s)
	if err != nil {
		return -1, err
	}
	e := wait(t, p)
	require.NoError(t, p.Close())
	require.Empty(t, e.Signal)
	return e.Code, nil
}

// Only the file that was verified is executed, and only as it was; a start without a
// pin takes what is there.
func TestPinnedExecutable(t *testing.T) {
	good, evil := programs(t)
	tr := transport(t, Config{Idle: 1})
	for name, limits := range map[string]route.Limits{"plain": {}, "limited": {Processes: 50}} {
		for _, c := range []struct {
			name   string
			change func(t *testing.T, path string)
			want   unix.Errno
		}{
			{"unchanged", func(*testing.T, string) {}, 0},
			{"read", func(t *testing.T, path string) { t.Helper(); _, err := os.ReadFile(path); require.NoError(t, err) }, 0},
			{"directory-renamed-and-back", func(t *testing.T, path string) {
				t.Helper()
				dir := filepath.Dir(path)
				require.NoError(t, errors.Join(os.Rename(dir, dir+"2"), os.Rename(dir+"2", dir)))
			}, 0},
			{"another-in-its-place", func(t *testing.T, path string) {
				t.Helper()
				writeProgram(t, path+".new", evil)
				require.NoError(t, os.Rename(path+".new", path))
			}, unix.ESTALE},
			{"same-bytes-in-its-place", func(t *testing.T, path string) {
				t.Helper()
				writeProgram(t, path+".new", good)
				require.NoError(t, os.Rename(path+".new", path))
			}, unix.ESTALE},
			{"written-over", func(t *testing.T, path string) { t.Helper(); writeProgram(t, path, evil) }, unix.ESTALE},
			{"written-over-with-the-old-time", func(t *testing.T, path string) {
				t.Helper()
				info, err := os.Stat(path)
				require.NoError(t, err)
				writeProgram(t, path, evil)
				require.NoError(t, os.Chtimes(path, info.ModTime(), info.ModTime()))
			}, unix.ESTALE},
			{"mode", func(t *testing.T, path string) { t.Helper(); require.NoError(t, os.Chmod(path, 0o500)) }, unix.ESTALE},
			{"link", func(t *testing.T, path string) {
				t.Helper()
				require.NoError(t, errors.Join(os.Rename(path, path+".old"), os.Symlink(path+".old", path)))
			}, unix.ELOOP},
			{"directory", func(t *testing.T, path string) {
				t.Helper()
				require.NoError(t, errors.Join(os.Remove(path), os.Mkdir(path, 0o700)))
			}, unix.ESTALE},
			{"fifo", func(t *testing.T, path string) {
				t.Helper()
				require.NoError(t, errors.Join(os.Remove(path), unix.Mkfifo(path, 0o700)))
			}, unix.ESTALE},
			{"gone", func(t *testing.T, path string) { t.Helper(); require.NoError(t, os.Remove(path)) }, unix.ENOENT},
			{"open-for-writing", func(t *testing.T, path string) {
				t.Helper()
				f, err := os.OpenFile(path, os.O_WRONLY, 0)
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, f.Close()) })
			}, unix.ETXTBSY},
		} {
			t.Run(name+"/"+c.name, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "d", "program")
				writeProgram(t, path, good)
				s := Spec{Path: path, Args: []string{"program"}, Dir: "/", Limits: limits, Pin: pinOf(t, path)}
				time.Sleep(20 * time.Millisecond) // more than a tick of the file system's clock
				c.change(t, path)
				code, err := exits(t, tr, s)
				if c.want == 0 {
					require.NoError(t, err)
					require.Zero(t, code)
					return
				}
				var failed *StartError
				require.ErrorAs(t, err, &failed)
				require.Equal(t, StartError{StageExecute, c.want}, *failed)
				require.ErrorIs(t, err, route.ErrUnavailable)
			})
		}
	}
}

// The child sees a file with its true path, and no descriptor more than without a pin.
func TestPinnedChildIsAsAnyOther(t *testing.T) {
	tr := transport(t, Config{Idle: 1})
	mark := marker(t)
	show := func(s Spec) string {
		r, err := tr.Run(t.Context(), s, 1<<20)
		require.NoError(t, err)
		return string(r.Stdout)
	}
	s := spec(mark, "inspect")
	pinned := s
	pinned.Pin = pinOf(t, s.Path)
	limited := pinned
	limited.Limits.Processes = 50
	for name, s := range map[string]Spec{"pinned": pinned, "limited": limited} {
		out := show(s)
		require.Contains(t, out, "fd 0 ", name)
		require.NotContains(t, out, " "+s.Path+"\n", name)
	}
	sh := Spec{Path: "/bin/readlink", Args: []string{"readlink", "/proc/self/exe"}, Dir: "/"}
	path, err := filepath.EvalSymlinks(sh.Path)
	require.NoError(t, err)
	sh.Path, sh.Pin = path, pinOf(t, path)
	require.Equal(t, path+"\n", show(sh))
}

// A swapper of directories races the start: what it puts in the place of the program
// is never executed.
func TestPinnedSwapper(t *testing.T) {
	good, evil := programs(t)
	tr := transport(t, Config{Idle: 2})
	base := t.TempDir()
	a, b := filepath.Join(base, "a"), filepath.Join(base, "b")
	path := filepath.Join(a, "program")
	writeProgram(t, path, good)
	writeProgram(t, filepath.Join(b, "program"), evil)
	s := Spec{Path: path, Args: []string{"program"}, Dir: "/", Pin: pinOf(t, path)}

	stop := make(chan struct{})
	var swapper sync.WaitGroup
	swapper.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
			}
		}
	})
	ran, refused := 0, 0
	for end := time.Now().Add(20 * time.Second); (ran < 50 || refused < 50) && time.Now().Before(end); {
		code, err := exits(t, tr, s)
		if err != nil {
			require.ErrorIs(t, err, unix.ESTALE)
			refused++
			continue
		}
		require.Zero(t, code, "the swapper's bytes ran")
		ran++
	}
	close(stop)
	swapper.Wait()
	require.GreaterOrEqual(t, ran, 50)
	require.GreaterOrEqual(t, refused, 50)
}
