package home

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

const patience = 30 * time.Second

func free() (io.Closer, error) { return io.NopCloser(nil), nil }

// openRooms makes rooms that are closed at the end, and a baseline that has settled.
func openRooms(t *testing.T) (*Rooms, Dirs) {
	t.Helper()
	from := dirs(t)
	write(t, filepath.Join(from.Home, ".config", "hosts"), "token")
	write(t, filepath.Join(from.State, "seen"), "1")
	require.NoError(t, os.Symlink(".config", filepath.Join(from.Home, "link")))
	<-time.After(2 * tick)
	r := NewRooms(t.TempDir(), func(err error) { t.Error(err) })
	t.Cleanup(r.Close)
	return r, from
}

// waiting are the rooms of p that wait.
func (r *Rooms) waiting(p *pool) []*room {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(p.rooms)
}

// wait until p has rooms that can be handed out.
func (r *Rooms) wait(t *testing.T, p *pool) {
	t.Helper()
	require.Eventually(t, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, m := range p.rooms {
			if m.own.settled(time.Now()) {
				return true
			}
		}
		return false
	}, patience, time.Millisecond)
}

// ahead returns a copy that was made ahead; its use leaves one room more in the pool.
func ahead(t *testing.T, r *Rooms, from Dirs) Dirs {
	t.Helper()
	for {
		d, err := r.Home(t.Context(), from, free)
		require.NoError(t, err)
		r.mu.Lock()
		again := r.out[filepath.Dir(d.Home)].keep
		r.mu.Unlock()
		if again {
			return d
		}
		n := r.InUse()
		require.NoError(t, r.Return(filepath.Dir(d.Home)))
		require.Eventually(t, func() bool { return r.InUse() < n }, patience, time.Millisecond)
	}
}

// idle waits until all that was returned was looked at.
func (r *Rooms) idle(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool { return r.InUse() == 0 }, patience, time.Millisecond)
}

func inode(t *testing.T, path string) uint64 {
	t.Helper()
	var st unix.Stat_t
	require.NoError(t, unix.Lstat(path, &st))
	return st.Ino
}

func (r *Rooms) inodes(t *testing.T) map[uint64]bool {
	t.Helper()
	all, err := os.ReadDir(r.dir)
	require.NoError(t, err)
	found := make(map[uint64]bool)
	for _, e := range all {
		found[inode(t, filepath.Join(r.dir, e.Name()))] = true
	}
	return found
}

func TestUntouchedRoomsAreUsedAgain(t *testing.T) {
	t.Parallel()
	r, from := openRooms(t)
	d := ahead(t, r, from)
	old := filepath.Dir(d.Home)
	was := inode(t, old)
	data, err := os.ReadFile(filepath.Join(d.Home, "link", "hosts")) // to read is not to touch
	require.NoError(t, err)
	require.Equal(t, "token", string(data))
	_, err = os.ReadDir(d.Temp)
	require.NoError(t, err)
	require.NoError(t, r.Return(old))
	r.idle(t)
	require.True(t, r.inodes(t)[was])
	require.NoDirExists(t, old, "who had it knows the old path")
	require.ErrorIs(t, r.Return(old), ErrUnknown)

	r.wait(t, r.plain)
	dir, err := r.Plain()
	require.NoError(t, err)
	work := inode(t, dir)
	require.NoError(t, r.Return(dir))
	r.idle(t)
	seen := false
	for range mostKept + 1 {
		next, err := r.Plain()
		require.NoError(t, err)
		require.NotEqual(t, dir, next)
		seen = seen || inode(t, next) == work
	}
	require.True(t, seen)
}

// What an operation does to its directories in any way is dropped with them.
func TestTouchedRoomsAreRemoved(t *testing.T) {
	t.Parallel()
	put := func(data string, path ...string) error {
		return os.WriteFile(filepath.Join(path...), []byte(data), 0o600)
	}
	keepTimes := func(path string, do func() error) error {
		var st unix.Stat_t
		return errors.Join(unix.Lstat(path, &st), do(),
			unix.UtimesNanoAt(unix.AT_FDCWD, path, []unix.Timespec{st.Atim, st.Mtim}, unix.AT_SYMLINK_NOFOLLOW))
	}
	for what, touch := range map[string]func(d Dirs) error{
		"entry":           func(d Dirs) error { return put("evil", d.Home, "alias") },
		"entry-deep":      func(d Dirs) error { return put("evil", d.Home, ".config", "alias") },
		"result":          func(d Dirs) error { return put("evil", d.Work, "result") },
		"temporary-entry": func(d Dirs) error { return put("evil", d.Temp, "x") },
		"beside":          func(d Dirs) error { return put("evil", filepath.Dir(d.Home), "x") },
		"content-of-the-same-size-and-time": func(d Dirs) error {
			path := filepath.Join(d.Home, ".config", "hosts")
			return keepTimes(path, func() error { return put("TOKEN", path) })
		},
		"entry-that-went-again": func(d Dirs) error {
			return keepTimes(d.Home, func() error {
				return errors.Join(put("", d.Home, "x"), os.Remove(filepath.Join(d.Home, "x")))
			})
		},
		"mode-of-a-file":      func(d Dirs) error { return os.Chmod(filepath.Join(d.State, "seen"), 0o666) },
		"mode-of-a-directory": func(d Dirs) error { return os.Chmod(d.Temp, 0o777) },
		"mode-of-the-room":    func(d Dirs) error { return os.Chmod(filepath.Dir(d.Home), 0o777) },
		"removed":             func(d Dirs) error { return os.Remove(filepath.Join(d.State, "seen")) },
		"moved-away-and-back": func(d Dirs) error {
			return errors.Join(os.Rename(d.State, d.State+"x"), put("2", d.State+"x", "seen"), os.Rename(d.State+"x", d.State))
		},
		"replaced": func(d Dirs) error {
			return errors.Join(os.Rename(d.Temp, filepath.Join(d.Home, "old")), os.Mkdir(d.Temp, 0o700))
		},
		"link": func(d Dirs) error {
			link := filepath.Join(d.Home, "link")
			return errors.Join(os.Remove(link), os.Symlink("/etc", link))
		},
		"second-name": func(d Dirs) error {
			return errors.Join(os.Link(filepath.Join(d.State, "seen"), filepath.Join(d.Temp, "x")), os.Remove(filepath.Join(d.Temp, "x")))
		},
		"room-is-a-link": func(d Dirs) error {
			top := filepath.Dir(d.Home)
			return errors.Join(os.Rename(top, top+"x"), os.Symlink(top+"x", top))
		},
		"room-is-gone": func(d Dirs) error { return os.RemoveAll(filepath.Dir(d.Home)) },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			r, from := openRooms(t)
			d := ahead(t, r, from)
			top := filepath.Dir(d.Home)
			homeWas, tempWas := inode(t, d.Home), inode(t, d.Temp)
			require.NoError(t, touch(d))
			r.mu.Lock()
			m := r.out[top]
			r.mu.Unlock()
			require.NoError(t, r.Return(top))
			r.idle(t)
			require.NotContains(t, r.waiting(m.pool), m)
			_, err := os.Lstat(top)
			require.ErrorIs(t, err, fs.ErrNotExist)
			for range 3 {
				d, err := r.Home(t.Context(), from, free)
				require.NoError(t, err)
				requireCopy(t, d, "token")
				if what != "room-is-a-link" { // the numbers are free
					continue
				}
				require.NotEqual(t, homeWas, inode(t, d.Home))
				require.NotEqual(t, tempWas, inode(t, d.Temp))
			}
		})
	}
}

func requireCopy(t *testing.T, d Dirs, token string) {
	t.Helper()
	var all []string
	err := filepath.WalkDir(filepath.Dir(d.Home), func(p string, e fs.DirEntry, err error) error {
		all = append(all, strings.TrimPrefix(p, filepath.Dir(d.Home))+" "+e.Type().String())
		return err
	})
	require.NoError(t, err)
	require.Equal(t, []string{
		" d---------", "/home d---------", "/home/.config d---------", "/home/.config/hosts ----------",
		"/home/link L---------", "/state d---------", "/state/seen ----------", "/tmp d---------",
		"/work d---------",
	}, all)
	data, err := os.ReadFile(filepath.Join(d.Home, ".config", "hosts"))
	require.NoError(t, err)
	require.Equal(t, token, string(data))
}

// A copy that was made ahead is handed out only as long as the baseline is the same.
func TestCopiesMadeAheadAreOfTheBaselineAsItIs(t *testing.T) {
	t.Parallel()
	r, from := openRooms(t)
	d := ahead(t, r, from)
	require.NoError(t, r.Return(filepath.Dir(d.Home)))
	r.idle(t)
	file := filepath.Join(from.Home, ".config", "hosts")
	old, err := os.Stat(file)
	require.NoError(t, err)
	write(t, file, "TOKEN") // of the same size
	require.NoError(t, os.Chtimes(file, old.ModTime(), old.ModTime()))
	d, err = r.Home(t.Context(), from, free)
	require.NoError(t, err)
	requireCopy(t, d, "TOKEN")
	require.Eventually(t, func() bool { return r.InUse() == 1 }, patience, time.Millisecond)
	for _, m := range r.waiting(r.poolOf(from, free)) { // none of those that were there before stays
		require.True(t, m.base.same(nowhere))
	}

	busy := errors.New("busy")
	_, err = r.Home(t.Context(), from, func() (io.Closer, error) { return nil, busy })
	require.ErrorIs(t, err, busy)

	d = ahead(t, r, from)
	require.NoError(t, r.Return(filepath.Dir(d.Home)))
	write(t, filepath.Join(from.Home, "more"), "")
	d, err = r.Home(t.Context(), from, free)
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(d.Home, "more"))
	require.NoError(t, r.Return(filepath.Dir(d.Home)))

	require.NoError(t, os.RemoveAll(from.Home))
	_, err = r.Home(t.Context(), from, free)
	require.ErrorIs(t, err, fs.ErrNotExist)
}

// A change in the tick of the copying would not show, so that nothing is made ahead of a
// baseline that changes.
func TestFreshBaselinesAreNotCopiedAhead(t *testing.T) {
	t.Parallel()
	r, from := openRooms(t)
	for range 20 {
		write(t, filepath.Join(from.Home, ".config", "hosts"), "token")
		m, err := r.furnish(t.Context(), r.poolOf(from, free))
		require.NoError(t, err)
		began := time.Now().UnixNano() - int64(tick) // as it was, or later
		require.True(t, !m.sound || m.base.newest < began, "%d ns", m.base.newest-began)
		require.NoError(t, r.remove(m))
	}
}

// A change in the tick of the making would not show, so that such a room is used once.
func TestFreshRoomsAreUsedOnce(t *testing.T) {
	t.Parallel()
	r, from := openRooms(t)
	d, err := r.Home(t.Context(), from, free)
	require.NoError(t, err)
	was := inode(t, d.Home)
	require.NoError(t, r.Return(filepath.Dir(d.Home)))
	r.idle(t)
	for _, m := range r.waiting(r.poolOf(from, free)) {
		require.NotEqual(t, was, inode(t, In(m.path).Home))
	}

	// Nor is one handed out at once that was made ahead.
	p := &pool{target: mostKept, again: mostKept}
	before := time.Now()
	m, err := r.furnish(t.Context(), p)
	require.NoError(t, err)
	r.mu.Lock()
	kept := r.keep(m)
	r.mu.Unlock()
	require.True(t, kept)
	if got := r.pop(p); got != nil {
		require.GreaterOrEqual(t, time.Since(before), tick)
	}
}

// Of a login that was purged no copy stays.
func TestForgetLeavesNoCopy(t *testing.T) {
	t.Parallel()
	r, from := openRooms(t)
	for range 3 {
		d, used := ahead(t, r, from), ahead(t, r, from)
		require.NoError(t, r.Return(filepath.Dir(d.Home)))
		require.NoError(t, r.Return(filepath.Dir(used.Home)))
		r.Forget(from)
		r.Forget(from)
		found, err := filepath.Glob(filepath.Join(r.dir, "*", homeDir))
		require.NoError(t, err)
		require.Empty(t, found)
	}
}

// TestNothingIsCopiedAfterForget: not even by a copy ahead that was decided on before.
func TestNothingIsCopiedAfterForget(t *testing.T) {
	t.Parallel()
	r, from := openRooms(t)
	var held atomic.Int64
	p := r.poolOf(from, func() (io.Closer, error) {
		held.Add(1)
		return free()
	})
	r.Forget(from)
	r.ahead(p)
	require.Zero(t, held.Load())
}

func TestCopiesOfWhatIsGoneAreDropped(t *testing.T) {
	t.Parallel()
	r, from := openRooms(t)
	d := ahead(t, r, from)
	require.NoError(t, r.Return(filepath.Dir(d.Home)))
	r.idle(t)
	require.NoError(t, os.RemoveAll(from.Home)) // by another process
	r.dropStale()
	found, err := filepath.Glob(filepath.Join(r.dir, "*", homeDir))
	require.NoError(t, err)
	require.Empty(t, found)
}

func TestRoomsConcurrently(t *testing.T) {
	t.Parallel()
	r, from := openRooms(t)
	var mu sync.Mutex
	live := make(map[string]bool)
	var all sync.WaitGroup
	for w := range 6 {
		all.Go(func() {
			rnd := rand.New(rand.NewPCG(1, uint64(w)))
			for i := range 60 {
				d, err := r.Home(t.Context(), from, free)
				if err != nil {
					t.Error(err)
					return
				}
				dir, err := r.Plain()
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if live[dir] || live[d.Home] {
					t.Error("handed out twice")
				}
				live[dir], live[d.Home] = true, true
				mu.Unlock()
				requireCopy(t, d, "token")
				if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
					t.Error(left, err)
				}
				if rnd.IntN(3) == 0 {
					for _, p := range []string{dir, d.Home, d.Temp, filepath.Join(d.Home, ".config")} {
						if err := os.WriteFile(filepath.Join(p, fmt.Sprint(i)), []byte("evil"), 0o600); err != nil {
							t.Error(err)
						}
					}
				}
				if err := errors.Join(r.Return(dir), r.Return(filepath.Dir(d.Home))); err != nil {
					t.Error(err)
				}
				if rnd.IntN(20) == 0 {
					r.Forget(from)
				}
			}
		})
	}
	all.Wait()
	r.Close()
	r.Close()
}

func TestLargeCopiesAreNotKept(t *testing.T) {
	t.Parallel()
	r, from := openRooms(t)
	write(t, filepath.Join(from.Home, "large"), strings.Repeat("x", keptBytes))
	<-time.After(2 * tick) // so that this is not why
	for range 4 {
		d, err := r.Home(t.Context(), from, free)
		require.NoError(t, err)
		require.NoError(t, r.Return(filepath.Dir(d.Home)))
		r.idle(t)
	}
	require.Empty(t, r.waiting(r.poolOf(from, free)))
}
