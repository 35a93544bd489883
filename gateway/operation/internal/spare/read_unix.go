//go:build unix

package spare

import (
	"errors"
	"io"
	"syscall"

	"github.com/lendcli/lend/protocol"
)

// Read reads once into a buffer, behind room for a header. Where the pipe is a descriptor, the
// buffer is taken only when there is something to read, so that a silent
// operation holds none. The buffer is the caller's if n > 0.
func (s *Pool) Read(r io.Reader) (p *[]byte, n int, err error) {
	f, ok := r.(syscall.Conn)
	if !ok {
		return s.readInto(r)
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, 0, err
	}
	var failed error
	err = raw.Read(func(fd uintptr) bool {
		p = s.Get()
		for {
			n, failed = syscall.Read(int(fd), (*p)[protocol.DataHeaderMax:])
			if !errors.Is(failed, syscall.EINTR) {
				break
			}
		}
		if n <= 0 {
			s.Put(p)
			p, n = nil, 0
		}
		return !errors.Is(failed, syscall.EAGAIN)
	})
	switch {
	case err != nil:
		return p, n, err
	case n == 0 && failed == nil:
		failed = io.EOF
	}
	return p, n, failed
}
