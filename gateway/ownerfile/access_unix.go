//go:build unix

package ownerfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// open refuses a link at the end of the path and never blocks on a pipe.
func open(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, syscall.ELOOP) {
		return nil, &UnsafeError{Path: path, Why: "is a symbolic link"}
	}
	return f, err
}

func checkAccess(path string, _ *os.File, info os.FileInfo, a Access) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return &UnsafeError{Path: path, Why: "has no owner that can be read"}
	}
	if int(st.Uid) != os.Geteuid() {
		return &UnsafeError{Path: path, Why: fmt.Sprintf("belongs to user %d, not to you", st.Uid)}
	}
	perm := info.Mode().Perm()
	if perm&0o022 != 0 {
		return &UnsafeError{Path: path, Why: fmt.Sprintf("others may write it (mode %04o)", perm), Hint: "chmod go-w " + path}
	}
	if a == Private && perm&0o077 != 0 {
		return &UnsafeError{Path: path, Why: fmt.Sprintf("others may read it (mode %04o)", perm), Hint: "chmod 600 " + path}
	}
	return CheckDirectory(filepath.Dir(path))
}

// checkLink refuses a link that others could have made, or replace.
func checkLink(path string, info os.FileInfo) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || (int(st.Uid) != os.Geteuid() && st.Uid != 0) {
		return &UnsafeError{Path: path, Why: "the symbolic link belongs to another user"}
	}
	return CheckDirectory(filepath.Dir(path))
}

// CheckDirectory refuses a directory in which others could replace a file: one of
// another user (but root's), or one that others may write, unless it is sticky.
// Errors: those of os, *UnsafeError. On Windows it accepts every directory: the
// access lists of the files decide.
func CheckDirectory(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	return checkDirectory(dir, info)
}

func checkDirectory(dir string, info os.FileInfo) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || (int(st.Uid) != os.Geteuid() && st.Uid != 0) {
		return &UnsafeError{Path: dir, Why: "the directory belongs to another user"}
	}
	if info.Mode().Perm()&0o022 != 0 && info.Mode()&os.ModeSticky == 0 {
		return &UnsafeError{Path: dir, Why: "others may write the directory", Hint: "chmod go-w " + dir}
	}
	return nil
}

func makePrivate(f *os.File) error { return f.Chmod(0o600) }

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
