package home

import (
	"slices"

	"golang.org/x/sys/unix"
)

// handle is an open directory.
type handle int

// nowhere is for absolute paths.
const nowhere handle = unix.AT_FDCWD

func openDir(path string) (handle, bool) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	return handle(fd), err == nil
}

func (h handle) close() { _ = unix.Close(int(h)) } // only read

func (h handle) stateOf(path string) (state, bool) {
	var st unix.Stat_t
	if err := unix.Fstatat(int(h), path, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return state{}, false
	}
	return stateFrom(&st), true
}

func stateFrom(st *unix.Stat_t) state {
	return state{
		dev: uint64(st.Dev), ino: st.Ino, links: uint64(st.Nlink), size: st.Size, //nolint:unconvert // differs by architecture
		mtime: st.Mtim.Nano(), changed: st.Ctim.Nano(), mode: st.Mode, owner: st.Uid, group: st.Gid,
	}
}

// own is the state of the directory itself, without times and size.
func (h handle) own() (state, bool) {
	var st unix.Stat_t
	if err := unix.Fstat(int(h), &st); err != nil {
		return state{}, false
	}
	s := stateFrom(&st)
	s.size, s.mtime, s.changed = 0, 0, 0
	return s, true
}

// holds tells whether the directory has exactly these entries, a few and sorted.
func (h handle) holds(want []string) bool {
	var buf [1024]byte // more than they take
	var names []string
	for {
		n, err := unix.ReadDirent(int(h), buf[:])
		if err != nil || len(names) > len(want) {
			return false
		}
		if n <= 0 {
			slices.Sort(names)
			return slices.Equal(names, want)
		}
		_, _, names = unix.ParseDirent(buf[:n], -1, names)
	}
}
