package ownersocket

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// MaxPath bounds the path of a socket, in bytes: what the system takes, without the NUL
// that ends it.
const MaxPath = len(syscall.RawSockaddrUnix{}.Path) - 1

// ErrInUse says that somebody answers on the socket.
var ErrInUse = errors.New("another program answers on the socket")

// Peer is the process at the other end of a connection, when it connected.
type Peer struct{ User, Process int }

// lockTimeout is how long others may hold the lock of the directory.
const lockTimeout = 5 * time.Second

// Listen makes the socket at path; what it is called is for errors. The directory must
// be the user's own, with mode 0700. A socket that nobody answers on is replaced, one of
// a program that is busy, stopped or just about to listen is not. The first Close of the
// listener removes the socket. Errors: those of os and net, ErrInUse, and that the path,
// the directory or what is there cannot be used.
func Listen(ctx context.Context, what, path string) (net.Listener, error) {
	if len(path) > MaxPath {
		return nil, fmt.Errorf("%s: its path has %d bytes, the system takes %d: keep lend in a directory with a shorter name", what, len(path), MaxPath)
	}
	if err := checkDirectory(what, filepath.Dir(path)); err != nil {
		return nil, err
	}
	unlock, err := lockDirectory(ctx, filepath.Dir(path)) // of two that find the same stale socket, one may not remove the other's
	if err != nil {
		return nil, fmt.Errorf("directory of the %s: %w", what, err)
	}
	defer unlock()
	if err := removeStale(ctx, what, path); err != nil {
		return nil, err
	}
	l, err := listenPrivate(path)
	if err != nil {
		return nil, fmt.Errorf("listen on the %s: %w", what, err)
	}
	return l, nil
}

// removeStale removes a socket that nobody answers on, and nothing else.
func removeStale(ctx context.Context, what, path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look at the %s: %w", what, err)
	}
	if info.Mode().Type() != os.ModeSocket {
		return fmt.Errorf("%s: %s exists and is not a socket", what, path)
	}
	d := net.Dialer{Timeout: time.Second}
	c, err := d.DialContext(ctx, "unix", path)
	var slow net.Error
	switch {
	case err == nil:
		_ = c.Close()
		return ErrInUse
	case errors.Is(err, syscall.ECONNREFUSED):
		return os.Remove(path)
	case ctx.Err() == nil && errors.As(err, &slow) && slow.Timeout(): // EAGAIN is one
		return ErrInUse // its queue is full: somebody has it
	}
	return fmt.Errorf("look whether somebody answers on the %s: %w", what, err)
}
