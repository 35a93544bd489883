package artifact

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// identity is what changes when a file does. It is comparable.
type identity struct {
	dev, ino     uint64
	size         int64
	mtime, ctime int64 // nanoseconds
	mode, owner  uint32
}

// base stands for the root of a tree, whose entries are looked up by their whole paths.
type base struct{}

func openBase(*Snapshot) (base, error) { return base{}, nil }

func (base) close() {}

func (base) identityOf(e *entry) (identity, error) { return identityOf(e.abs) }

func identityOf(path string) (identity, error) {
	var st syscall.Stat_t
	if err := syscall.Lstat(path, &st); err != nil {
		return identity{}, &fs.PathError{Op: "lstat", Path: path, Err: err}
	}
	return identityFrom(&st), nil
}

func identityOfFile(f *os.File) (identity, error) {
	var st syscall.Stat_t
	if err := syscall.Fstat(int(f.Fd()), &st); err != nil {
		return identity{}, &fs.PathError{Op: "fstat", Path: f.Name(), Err: err}
	}
	return identityFrom(&st), nil
}

func identityFrom(st *syscall.Stat_t) identity {
	return identity{
		dev: uint64(st.Dev), ino: st.Ino, size: st.Size,
		mtime: st.Mtimespec.Nano(), ctime: st.Ctimespec.Nano(), mode: uint32(st.Mode), owner: st.Uid,
	}
}

func (i identity) isDir() bool { return i.mode&syscall.S_IFMT == syscall.S_IFDIR }

// wellFormed tells whether Import could have made it.
func (i identity) wellFormed() bool {
	perm := fs.FileMode(i.mode & 0o7777)
	if i.isDir() {
		return perm == modeDir
	}
	return i.mode&syscall.S_IFMT == syscall.S_IFREG && (perm == modeFile || perm == modeExecutable)
}

func openNoFollow(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
}

func syncFile(f *os.File) error { return f.Sync() }

func syncTree(root *os.Root, dirs []string) error {
	var errs error
	for _, p := range append([]string{"."}, dirs...) {
		d, err := root.Open(p)
		if err == nil {
			err = errors.Join(d.Sync(), d.Close())
		}
		errs = errors.Join(errs, err)
	}
	return errs
}
