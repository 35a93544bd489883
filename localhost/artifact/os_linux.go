package artifact

import (
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// identity is what changes when a file does. It is comparable.
type identity struct {
	dev, ino     uint64
	size         int64
	mtime, ctime int64 // nanoseconds
	mode, owner  uint32
}

func identityOf(path string) (identity, error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return identity{}, &fs.PathError{Op: "lstat", Path: path, Err: err}
	}
	return identityFrom(&st), nil
}

func identityOfFile(f *os.File) (identity, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return identity{}, &fs.PathError{Op: "fstat", Path: f.Name(), Err: err}
	}
	return identityFrom(&st), nil
}

// base is the open root of a tree, in which its entries are looked up: that is twice as
// fast as by their whole paths.
type base int

func openBase(s *Snapshot) (base, error) {
	fd, err := unix.Open(s.dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, &fs.PathError{Op: "open", Path: s.dir, Err: err}
	}
	return base(fd), nil
}

func (b base) close() { _ = unix.Close(int(b)) } // only looked at

func (b base) identityOf(e *entry) (identity, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(int(b), e.path, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return identity{}, &fs.PathError{Op: "lstat", Path: e.abs, Err: err}
	}
	return identityFrom(&st), nil
}

func identityFrom(st *unix.Stat_t) identity {
	return identity{
		dev: uint64(st.Dev), ino: st.Ino, size: st.Size, //nolint:unconvert // differs by architecture
		mtime: st.Mtim.Nano(), ctime: st.Ctim.Nano(), mode: st.Mode, owner: st.Uid,
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

// syncFile leaves the work to syncTree: one pass over the file system is much
// cheaper than one wait per file.
func syncFile(*os.File) error { return nil }

func syncTree(root *os.Root, _ []string) error {
	d, err := root.Open(".")
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }()
	return os.NewSyscallError("syncfs", unix.Syncfs(int(d.Fd())))
}
