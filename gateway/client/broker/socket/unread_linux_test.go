package socket

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lendcli/lend/gateway/client/broker"
	"github.com/lendcli/lend/gateway/client/broker/wire"
)

// A broker that dies or hangs up before it has read the whole call has started nothing:
// that is no unknown outcome, unless a cancel may be what it did not read.
func TestRunKnowsWhatWasNotRead(t *testing.T) {
	t.Parallel()
	const all = -1
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = null.Close() })
	for title, c := range map[string]struct {
		accepts bool
		reads   int // how many bytes
		cancel  bool
		want    error
	}{
		"not-accepted":           {false, 0, false, ErrNotRunning},
		"nothing-read":           {true, 0, false, ErrNotRunning},
		"header-read":            {true, wire.HeaderSize, false, ErrNotRunning},
		"part-read":              {true, wire.HeaderSize + 3, false, ErrNotRunning},
		"all-read":               {true, all, false, ErrLost},
		"all-but-the-cancel":     {true, all, true, ErrLost},
		"nothing-and-the-cancel": {true, 0, true, ErrLost},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			dir, err := os.MkdirTemp("", "s") //nolint:usetesting // t.TempDir is too long for a socket
			require.NoError(t, err)
			t.Cleanup(func() { _ = os.RemoveAll(dir) })
			path := filepath.Join(dir, "broker.sock")
			listener, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			require.NoError(t, err)
			require.NoError(t, unix.Bind(listener, &unix.SockaddrUnix{Name: path}))
			require.NoError(t, os.Chmod(path, 0o600))
			require.NoError(t, unix.Listen(listener, 8))
			cancels, ended := make(chan struct{}), make(chan error, 1)
			go func() {
				_, err := Run(t.Context(), path, wire.Call{}, broker.RunOptions{Connector: "x"}, [3]*os.File{null, null, null}, cancels)
				ended <- err
			}()
			_, err = unix.Poll([]unix.PollFd{{Fd: int32(listener), Events: unix.POLLIN}}, -1)
			require.NoError(t, err)
			if c.accepts {
				fd, _, err := unix.Accept(listener)
				require.NoError(t, err)
				caller := os.NewFile(uintptr(fd), "caller")
				head := make([]byte, wire.HeaderSize)
				if c.reads == all {
					_, err = io.ReadFull(caller, head)
					require.NoError(t, err)
					_, c.reads, err = wire.ParseHeader(head)
					require.NoError(t, err)
				}
				_, err = io.ReadFull(caller, make([]byte, c.reads))
				require.NoError(t, err)
				if c.cancel {
					cancels <- struct{}{}              // taken once the call was sent
					for n := 0; n < wire.HeaderSize; { // it is there
						n, err = unix.IoctlGetInt(fd, unix.TIOCINQ)
						require.NoError(t, err)
					}
				}
				require.NoError(t, caller.Close())
			}
			require.NoError(t, unix.Close(listener))
			err = <-ended
			require.ErrorIs(t, err, c.want)
			require.Equal(t, errors.Is(c.want, ErrNotRunning), errors.Is(err, ErrNotRunning))
		})
	}
}
