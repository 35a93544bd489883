//go:build unix

package socket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lendcli/lend/gateway/client/broker"
	"github.com/lendcli/lend/gateway/client/broker/stdio"
	"github.com/lendcli/lend/gateway/client/broker/wire"
)

// checkDirectory refuses a directory that others can reach or that is not ours.
func checkDirectory(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("directory of the broker's socket: %w", err)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || int(st.Uid) != os.Getuid() || info.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("directory of the broker's socket: %s must be yours with mode 0700", dir)
	}
	return nil
}

// checkSocket refuses what is not a socket of ours, closed to others, in a directory of
// ours: ErrNotRunning if nothing is there.
func checkSocket(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return ErrNotRunning
	}
	if err != nil {
		return fmt.Errorf("look at the broker's socket: %w", err)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || info.Mode().Type() != os.ModeSocket || int(st.Uid) != os.Getuid() || info.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("broker's socket: %s is not a socket of yours with mode 0600", path)
	}
	return checkDirectory(filepath.Dir(path))
}

// listenPrivate makes the socket under a name of its own, closes it to others and moves
// it into place, so that it is never open to them.
func listenPrivate(ctx context.Context, path string) (net.Listener, error) {
	temp := filepath.Join(filepath.Dir(path), fmt.Sprintf(".b%d", os.Getpid()))
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
	if rerr := os.Remove(l.path); !errors.Is(rerr, os.ErrNotExist) {
		err = errors.Join(err, rerr)
	}
	return err
}

func removeStale(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look at the broker's socket: %w", err)
	}
	if info.Mode().Type() != os.ModeSocket {
		return fmt.Errorf("broker's socket: %s exists and is not a socket", path)
	}
	d := net.Dialer{Timeout: time.Second}
	if c, err := d.DialContext(ctx, "unix", path); err == nil {
		_ = c.Close()
		return ErrInUse
	}
	return os.Remove(path)
}

// descriptors are the three that came with a call; nil: none came.
type descriptors struct{ set *stdio.Set }

func (d *descriptors) streams() broker.Streams {
	return broker.Streams{Stdin: d.set.Stdin(), Stdout: d.set.Stdout(), Stderr: d.set.Stderr()}
}

func (d *descriptors) stop() { d.set.Stop() }

func (d *descriptors) close() error {
	if d == nil {
		return nil
	}
	return d.set.Close()
}

// readFirst reads the first frame of a connection. Descriptors come with the first byte
// of its header: three for a call, else none.
func readFirst(c net.Conn) (wire.Kind, []byte, *descriptors, error) {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return 0, nil, nil, errors.New("not a unix connection")
	}
	head := make([]byte, wire.HeaderSize)
	control := make([]byte, unix.CmsgSpace(3*4))
	n, cn, flags, _, err := u.ReadMsgUnix(head, control)
	fds, bad := descriptorsOf(control[:cn])
	kind, payload := wire.Kind(0), []byte(nil)
	switch {
	case err != nil:
	case n == 0:
		err = io.EOF
	case bad != nil || flags&unix.MSG_CTRUNC != 0:
		err = errors.Join(errors.New("more descriptors than there may be"), bad)
	default:
		if _, err = io.ReadFull(u, head[n:]); err == nil {
			payload, err = readPayload(u, head, wire.KindCall, wire.KindRun, wire.KindControl)
			kind = wire.Kind(head[1])
		}
	}
	want := 3
	if kind == wire.KindControl {
		want = 0
	}
	if err == nil && len(fds) != want {
		err = errors.New("not the descriptors that belong to the request")
	}
	if err != nil || want == 0 {
		for _, fd := range fds {
			err = errors.Join(err, unix.Close(fd))
		}
		return kind, payload, nil, err
	}
	set, err := stdio.New([3]int(fds))
	if err != nil {
		return 0, nil, nil, err
	}
	return kind, payload, &descriptors{set}, nil
}

func descriptorsOf(control []byte) (fds []int, err error) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return nil, err
	}
	for _, m := range messages {
		got, err := unix.ParseUnixRights(&m)
		if err != nil {
			return fds, err
		}
		for _, fd := range got {
			unix.CloseOnExec(fd)
		}
		fds = append(fds, got...)
	}
	return fds, nil
}

// writeFirst sends a header with the descriptors of three files.
func writeFirst(c net.Conn, head []byte, files [3]*os.File) error {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return errors.New("not a unix connection")
	}
	var fds [3]int
	for i, f := range files {
		raw, err := f.SyscallConn() // unlike Fd it leaves the mode as it is
		if err == nil {
			err = raw.Control(func(fd uintptr) { fds[i] = int(fd) })
		}
		if err != nil {
			return err
		}
	}
	_, _, err := u.WriteMsgUnix(head, unix.UnixRights(fds[:]...), nil)
	return err
}
