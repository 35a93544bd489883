package stdio

import (
	"errors"

	"golang.org/x/sys/unix"
)

// canNow says that a file of this kind may be read and written without ever waiting,
// whatever its mode is: pipes and sockets, on Linux from 6.5 on.
func canNow(mode uint32) bool {
	kind := mode & unix.S_IFMT
	return kind == unix.S_IFIFO || kind == unix.S_IFSOCK
}

// readNow and writeNow do what can be done at once: EAGAIN if that is nothing.
func readNow(fd int, b []byte) (int, error) {
	return unix.Preadv2(fd, [][]byte{b}, -1, unix.RWF_NOWAIT)
}

func writeNow(fd int, b []byte) (int, error) {
	return unix.Pwritev2(fd, [][]byte{b}, -1, unix.RWF_NOWAIT)
}

// cannotNow tells whether the system knows no such thing.
func cannotNow(err error) bool {
	return errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EINVAL)
}
