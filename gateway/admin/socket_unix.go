//go:build unix

package admin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
)

// checkDirectory refuses a directory that others can reach or that is not ours.
func checkDirectory(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("directory of the admin socket: %w", err)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || int(st.Uid) != os.Getuid() || info.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("directory of the admin socket: %s must be yours with mode 0700", dir)
	}
	return nil
}

// listenPrivate makes the socket under a name of its own, closes it to others and
// moves it into place, so that it is never open to them.
func listenPrivate(ctx context.Context, path string) (net.Listener, error) {
	temp := filepath.Join(filepath.Dir(path), fmt.Sprintf(".%d", os.Getpid())) // no longer than path: both are bounded
	if err := os.Remove(temp); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "unix", temp)
	if err != nil {
		return nil, err
	}
	u, ok := l.(*net.UnixListener)
	if !ok {
		return nil, errors.Join(errors.New("not a unix socket"), l.Close())
	}
	u.SetUnlinkOnClose(false)
	if err := errors.Join(os.Chmod(temp, 0o600), os.Rename(temp, path)); err != nil {
		return nil, errors.Join(err, l.Close(), os.Remove(temp))
	}
	return &unlinkingListener{UnixListener: u, path: path}, nil
}

type unlinkingListener struct {
	*net.UnixListener
	path string
}

func (l *unlinkingListener) Close() error {
	err := l.UnixListener.Close()
	if errors.Is(err, net.ErrClosed) {
		return err
	}
	return errors.Join(err, os.Remove(l.path))
}
