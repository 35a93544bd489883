//go:build unix

package socket

import (
	"errors"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/lendcli/lend/gateway/client/broker"
	"github.com/lendcli/lend/gateway/client/broker/stdio"
	"github.com/lendcli/lend/gateway/client/broker/wire"
)

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
