//go:build unix

package private

import (
	"errors"
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

// read reads at most one byte more than limit from a file that is no link; a pipe does
// not block it. A start reads several files: no more system calls than it needs.
func read(path string, limit int) ([]byte, error) {
	fd, err := again(func() (int, error) {
		return unix.Open(path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer func() { _ = unix.Close(fd) }() // only read
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Mode&0o077 != 0 || int(st.Uid) != os.Geteuid() {
		return nil, notPrivate(path)
	}
	data := make([]byte, 0, min(max(st.Size, 0), int64(limit))+1)
	for len(data) <= limit {
		if len(data) == cap(data) {
			data = append(data, 0)[:len(data)]
		}
		n, err := again(func() (int, error) { return unix.Read(fd, data[len(data):min(cap(data), limit+1)]) })
		if err != nil {
			return nil, &fs.PathError{Op: "read", Path: path, Err: err}
		}
		if n == 0 {
			break
		}
		data = data[:len(data)+n]
	}
	return data, nil
}

func again(f func() (int, error)) (int, error) {
	for {
		if n, err := f(); !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}
