package main

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lendcli/lend/gateway/client/broker/wire"
)

// shimOf builds lend-shim and returns a name that leads to it.
func shimOf(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "lend-shim")
	out, err := exec.Command("go", "build", "-o", path, ".").CombinedOutput()
	require.NoError(t, err, string(out))
	require.NoError(t, os.Symlink(path, filepath.Join(dir, "gh")))
	return filepath.Join(dir, "gh")
}

// door is a broker that says what a test wants.
func door(t *testing.T, answer []byte) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "s") //nolint:usetesting // t.TempDir is too long for a socket
	require.NoError(t, err)
	path := filepath.Join(dir, "b")
	l, err := net.Listen("unix", path)
	require.NoError(t, err)
	require.NoError(t, os.Chmod(path, 0o600))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			head := make([]byte, wire.HeaderSize)
			if _, err := io.ReadFull(c, head); err == nil {
				_, n, _ := wire.ParseHeader(head)
				_, _ = io.ReadFull(c, make([]byte, n))
				_, _ = c.Write(answer)
			}
			_ = c.Close()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
		_ = os.RemoveAll(dir)
	})
	return path
}

func run(shim, session string, args ...string) (int, string) {
	cmd := exec.Command(shim, args...)
	cmd.Env = []string{}
	if session != "" {
		cmd.Env = append(cmd.Env, "LEND_SESSION="+session)
	}
	var errs bytes.Buffer
	cmd.Stderr = &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return -1, err.Error()
	}
	return cmd.ProcessState.ExitCode(), errs.String()
}

// Only an end that the broker has heard of is a success.
func TestShimReturnsWhatItIsTold(t *testing.T) {
	shim := shimOf(t)
	frame := func(e wire.Exit) []byte {
		p := e.Append(nil)
		return append(wire.Header(wire.KindExit, len(p)), p...)
	}
	for name, c := range map[string]struct {
		answer []byte
		want   int
		says   string
	}{
		"success":     {frame(wire.Exit{Ended: true}), 0, ""},
		"no-end":      {frame(wire.Exit{}), 255, ""},
		"seven":       {frame(wire.Exit{Status: 7, Ended: true}), 7, ""},
		"refused":     {frame(wire.Exit{Status: 126, Message: "no", Hint: "yes"}), 126, "lend: error: no\nlend: hint: yes\n"},
		"nothing":     {nil, 255, "outcome is unknown"},
		"half":        {frame(wire.Exit{Ended: true})[:8], 255, "outcome is unknown"},
		"noise":       {[]byte("HTTP/1.1 200 OK\r\n\r\n"), 255, "outcome is unknown"},
		"other-kind":  {append(wire.Header(wire.KindAnswer, 2), "{}"...), 255, "outcome is unknown"},
		"malformed":   {append(wire.Header(wire.KindExit, 2), 9, 9), 255, "outcome is unknown"},
		"huge-length": {[]byte{1, 'E', 0xff, 0xff, 0xff, 0xff}, 255, "outcome is unknown"},
	} {
		got, errs := run(shim, "handle:"+door(t, c.answer), "issue", "list")
		require.Equal(t, c.want, got, name)
		require.Contains(t, errs, c.says, name)
	}
}

// A shim hands its streams to a broker of its own user alone; else it does nothing.
func TestShimRefuses(t *testing.T) {
	shim := shimOf(t)
	e := (&wire.Exit{Ended: true}).Append(nil)
	answer := append(wire.Header(wire.KindExit, len(e)), e...)
	for name, c := range map[string]struct {
		session, says string
	}{
		"none":      {"", "no session"},
		"no-handle": {":/x", "no session"},
		"no-path":   {"handle:", "no session"},
		"relative":  {"handle:run/b", "no session"},
		"abstract":  {"handle:@b", "no session"},
		"nothing":   {"handle:/nowhere/b", "no broker is running"},
		"file":      {"handle:" + shim, "not yours alone"},
	} {
		got, errs := run(shim, c.session, "x")
		require.Equal(t, 125, got, name)
		require.Contains(t, errs, c.says, name)
	}
	path := door(t, answer)
	try := func() (int, string) { return run(shim, "handle:"+path, "x") }
	got, errs := try()
	require.Zero(t, got, errs)
	changes := map[string][2]func() error{
		"open-socket":    {func() error { return os.Chmod(path, 0o666) }, func() error { return os.Chmod(path, 0o600) }},
		"open-directory": {func() error { return os.Chmod(filepath.Dir(path), 0o755) }, func() error { return os.Chmod(filepath.Dir(path), 0o700) }},
	}
	if os.Getuid() == 0 {
		changes["foreign-socket"] = [2]func() error{func() error { return os.Chown(path, 65534, -1) }, func() error { return os.Chown(path, 0, -1) }}
		changes["foreign-directory"] = [2]func() error{
			func() error { return os.Chown(filepath.Dir(path), 65534, -1) }, func() error { return os.Chown(filepath.Dir(path), 0, -1) },
		}
	}
	for name, c := range changes {
		require.NoError(t, c[0]())
		got, errs := try()
		require.NoError(t, c[1]())
		require.Equal(t, 125, got, name)
		require.Contains(t, errs, "not yours alone", name)
	}
	got, errs = run(shim, "handle:"+path, strings.Fields(strings.Repeat("a ", 257))...)
	require.Equal(t, 126, got)
	require.Contains(t, errs, "ARGUMENT_REJECTED")
}

// A broker that dies or hangs up before it has read the whole call has started nothing:
// that is no unknown outcome. The kernel closes the files of a process that is killed one
// by one, so that a socket may be there a moment longer than who listens on it.
func TestShimKnowsWhatWasNotRead(t *testing.T) {
	shim := shimOf(t)
	const all = -1
	none, looks := "no broker is running here\nlend: hint: lend broker\n", "before it had read the call: nothing ran\nlend: hint: lend broker status\n"
	for name, c := range map[string]struct {
		accepts bool
		reads   int  // how many bytes
		stays   bool // somebody listens there afterwards
		want    int
		says    string
	}{
		"not-accepted":      {false, 0, false, 125, none},
		"nothing-read":      {true, 0, false, 125, none},
		"header-read":       {true, wire.HeaderSize, false, 125, none},
		"part-read":         {true, wire.HeaderSize + 3, false, 125, none},
		"somebody-there":    {true, wire.HeaderSize, true, 125, looks},
		"all-read":          {true, all, false, 255, "outcome is unknown"},
		"all-read-and-stay": {true, all, true, 255, "outcome is unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			dir, err := os.MkdirTemp("", "s") //nolint:usetesting // t.TempDir is too long for a socket
			require.NoError(t, err)
			t.Cleanup(func() { _ = os.RemoveAll(dir) })
			path := filepath.Join(dir, "b")
			listener, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			require.NoError(t, err)
			require.NoError(t, unix.Bind(listener, &unix.SockaddrUnix{Name: path}))
			require.NoError(t, os.Chmod(path, 0o600))
			require.NoError(t, unix.Listen(listener, 8))
			ended := make(chan struct{})
			var got int
			var errs string
			go func() {
				defer close(ended)
				got, errs = run(shim, "handle:"+path, "issue", "list")
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
				defer func() { require.NoError(t, unix.Close(listener)) }()
				if !c.stays {
					require.NoError(t, os.Remove(path))
				}
				require.NoError(t, caller.Close())
			} else {
				require.NoError(t, unix.Close(listener))
			}
			<-ended
			require.Equal(t, c.want, got, errs)
			require.Contains(t, errs, c.says)
		})
	}
}

// A broker of another user is spoken to by nobody, even behind a socket of ours.
func TestShimRefusesAnothersBroker(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to be another user")
	}
	shim := shimOf(t)
	dir, err := os.MkdirTemp("", "s") //nolint:usetesting // t.TempDir is too long for a socket
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "b")
	require.NoError(t, os.Chown(dir, 65534, -1))
	become := func(uid int) {
		_, _, e := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), uintptr(uid), ^uintptr(0)) // this thread alone
		require.Zero(t, e)
	}
	runtime.LockOSThread()
	become(65534)
	l, err := net.Listen("unix", path)
	become(0)
	runtime.UnlockOSThread()
	require.NoError(t, err)
	require.NoError(t, errors.Join(os.Chown(dir, 0, -1), os.Chown(path, 0, -1), os.Chmod(path, 0o600)))
	heard := make(chan int, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			heard <- -1
			return
		}
		b, _ := io.ReadAll(c)
		_ = c.Close()
		heard <- len(b)
	}()
	got, errs := run(shim, "handle:"+path, "x")
	require.Equal(t, 125, got)
	require.Contains(t, errs, "the broker is not yours")
	require.Zero(t, <-heard, "not a byte")
	require.NoError(t, l.Close())
}
