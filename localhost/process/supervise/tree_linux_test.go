package supervise

import (
	"bytes"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestSourcesAreThisPackage(t *testing.T) {
	require.Len(t, Sources(), 6)
	exe, err := os.Executable()
	require.NoError(t, err)
	image, err := os.ReadFile(exe)
	require.NoError(t, err)
	for i, name := range []string{"wire.go", "main_linux.go", "tree_linux.go", "limits_linux.go", "pin_linux.go", "wait_linux.go"} {
		file, err := os.ReadFile(name)
		require.NoError(t, err)
		require.Equal(t, string(file), Sources()[i])
		require.True(t, bytes.Contains(image, file), "the linker keeps %s in one piece", name)
	}
	require.NotZero(t, ID())
}

// All ways to list children agree.
func TestChildren(t *testing.T) {
	var want []int
	for range 3 {
		c := exec.Command("/proc/self/exe", "-test.run", "^$", "-test.fuzzcachedir", t.TempDir())
		in, err := c.StdinPipe()
		require.NoError(t, err)
		require.NoError(t, c.Start())
		t.Cleanup(func() { require.NoError(t, in.Close()); require.NoError(t, c.Wait()) })
		want = append(want, c.Process.Pid)
	}
	require.ElementsMatch(t, want, Children(nil))
	require.ElementsMatch(t, want, scan(nil, os.Getpid()))
	c, err := openChildren()
	require.NoError(t, err)
	c.hard = true
	require.ElementsMatch(t, want, c.list())
	c.hard = false
	require.Subset(t, want, c.list())
}

func TestReadStat(t *testing.T) {
	st, err := ReadStat(os.Getpid())
	require.NoError(t, err)
	require.Equal(t, os.Getppid(), st.Parent)
	sid, err := unix.Getsid(0)
	require.NoError(t, err)
	require.Equal(t, sid, st.Session) // 0 if its leader is outside of our PID namespace
	require.Positive(t, st.Start)
	_, err = ReadStat(1 << 22)
	require.Error(t, err)
}

func TestMainReturns(t *testing.T) {
	Main() // no supervisor
	require.NotEqual(t, Argv0, os.Args[0])
}
