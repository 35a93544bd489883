package ownerfile

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestReadThatFails: nothing lies at address 0 of this process.
func TestReadThatFails(t *testing.T) {
	b, err := Read("/proc/self/mem", Private, 100)
	require.ErrorIs(t, err, syscall.EIO)
	require.ErrorContains(t, err, "read /proc/self/mem: ")
	require.Nil(t, b)
}

// TestLinkThatLeadsNowhere: the program of a process that has ended is a link that
// cannot be read.
func TestLinkThatLeadsNowhere(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^$")
	require.NoError(t, cmd.Start())
	defer func() { require.NoError(t, cmd.Wait()) }()
	var err error
	for err = unix.EINTR; errors.Is(err, unix.EINTR); {
		err = unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
	}
	require.NoError(t, err)
	link := "/proc/" + strconv.Itoa(cmd.Process.Pid) + "/exe"
	info, err := os.Lstat(link)
	require.NoError(t, err)
	require.Equal(t, os.ModeSymlink, info.Mode().Type())
	_, err = Follow(link)
	var failed *os.PathError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, "readlink", failed.Op)
}
