//go:build unix

package private

import (
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// private tells whether only this user can use the file.
func private(info fs.FileInfo) bool {
	sys, ok := info.Sys().(*syscall.Stat_t)
	return ok && info.Mode().Perm()&0o077 == 0 && int(sys.Uid) == os.Geteuid()
}

// open opens a file that is no link; a pipe does not block it.
func open(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
}
