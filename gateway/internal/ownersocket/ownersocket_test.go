//go:build linux

package ownersocket

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// fakeInfo is what a system says of a file that tells no owner.
type fakeInfo struct{ os.FileInfo }

func (fakeInfo) Sys() any { return nil }

// place is a directory of the owner's own.
func place(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "own-") //nolint:usetesting // the path is short
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return dir
}

func listen(t *testing.T, path string) net.Listener {
	t.Helper()
	l, err := Listen(t.Context(), "socket", path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	return l
}

func TestSocketIsTheOwnersAlone(t *testing.T) {
	path := filepath.Join(place(t), "s")
	require.ErrorIs(t, Check("socket", path), os.ErrNotExist)
	l := listen(t, path)
	require.NoError(t, Check("socket", path))
	info, err := os.Lstat(path)
	require.NoError(t, err)
	require.Equal(t, os.ModeSocket|0o600, info.Mode())
	left, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, left, 1, "it was moved")

	_, err = Listen(t.Context(), "socket", path)
	require.ErrorIs(t, err, ErrInUse)

	c, err := net.Dial("unix", path)
	require.NoError(t, err)
	defer func() { _ = c.Close() }()
	in, err := l.Accept()
	require.NoError(t, err)
	defer func() { _ = in.Close() }()
	for _, end := range []net.Conn{c, in} {
		p, err := PeerOf(end)
		require.NoError(t, err)
		require.Equal(t, Peer{os.Getuid(), os.Getpid()}, p)
	}
}

func TestCheckRefuses(t *testing.T) {
	dir := place(t)
	path := filepath.Join(dir, "s")
	listen(t, path)
	refused := func(want string) {
		t.Helper()
		require.ErrorContains(t, Check("x socket", path), want)
	}
	require.NoError(t, os.Chmod(path, 0o620))
	refused("x socket: " + path + " is not a socket of yours with mode 0600")
	require.NoError(t, os.Chmod(path, 0o600))
	require.NoError(t, os.Chmod(dir, 0o710))
	refused("directory of the x socket: " + dir + " must be yours with mode 0700")
	require.NoError(t, os.Chmod(dir, 0o700))
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.ErrorContains(t, Check("x socket", file), "is not a socket of yours")
	require.ErrorIs(t, Check("x socket", filepath.Join(file, "s")), syscall.ENOTDIR)
	if os.Getuid() == 0 {
		require.NoError(t, os.Chown(path, 65534, -1))
		refused("is not a socket of yours")
		require.NoError(t, os.Chown(path, 0, -1))
		require.NoError(t, os.Chown(dir, 65534, -1))
		refused("must be yours")
		require.NoError(t, os.Chown(dir, 0, -1))
	}
	require.NoError(t, Check("x socket", path))
}

// What tells no owner is nobody's.
func TestNoOwnerIsNotUs(t *testing.T) {
	info, err := os.Stat(place(t))
	require.NoError(t, err)
	require.True(t, ownAlone(info))
	require.False(t, ownAlone(fakeInfo{info}))
}

func TestListenRefuses(t *testing.T) {
	dir := place(t)
	path := filepath.Join(dir, "s")
	_, err := Listen(t.Context(), "x socket", filepath.Join(dir, strings.Repeat("s", MaxPath)))
	require.ErrorContains(t, err, "shorter name")
	_, err = Listen(t.Context(), "x socket", filepath.Join(dir, "none", "s"))
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, "directory of the x socket")

	require.NoError(t, os.WriteFile(path, []byte("mine"), 0o600))
	_, err = Listen(t.Context(), "x socket", path)
	require.ErrorContains(t, err, "exists and is not a socket")
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "mine", string(b))

	require.ErrorContains(t, removeStale(t.Context(), "x socket", filepath.Join(path, "s")), "look at the x socket")
}

// TestNothingIsLeft: what fails on the way leaves no socket, and says where it failed.
func TestNothingIsLeft(t *testing.T) {
	dir := place(t)
	path := filepath.Join(dir, "s")
	temp := tempName(path)

	require.NoError(t, os.MkdirAll(filepath.Join(temp, "full"), 0o700))
	_, err := Listen(t.Context(), "x socket", path)
	require.ErrorIs(t, err, syscall.ENOTEMPTY, "what is in the way is not removed")
	require.NoError(t, os.RemoveAll(temp))

	require.NoError(t, os.MkdirAll(filepath.Join(path, "full"), 0o700))
	_, err = listenPrivate(path)
	require.Error(t, err, "it cannot be moved into place")
	require.NoFileExists(t, temp)
	require.NoError(t, os.RemoveAll(path))

	long := filepath.Join(dir, strings.Repeat("d", MaxPath-len(dir)-len("//s")))
	require.NoError(t, os.Mkdir(long, 0o700))
	require.Len(t, filepath.Join(long, "s"), MaxPath)
	_, err = Listen(t.Context(), "x socket", filepath.Join(long, "s"))
	require.ErrorIs(t, err, syscall.EINVAL, "its temporary name is too long")
	require.ErrorContains(t, err, "listen on the x socket")
}

func TestStaleSocketIsReplaced(t *testing.T) {
	path := filepath.Join(place(t), "s")
	old, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	require.NoError(t, err)
	old.SetUnlinkOnClose(false)
	require.NoError(t, old.Close())
	require.FileExists(t, path)
	listen(t, path)
	require.NoError(t, Check("socket", path))
}

// TestBusyIsAlive: a program whose queue is full, since it is stopped or too slow, keeps
// its socket.
func TestBusyIsAlive(t *testing.T) {
	path := filepath.Join(place(t), "s")
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	defer func() { require.NoError(t, unix.Close(fd)) }()
	require.NoError(t, unix.Bind(fd, &unix.SockaddrUnix{Name: path}))
	require.NoError(t, unix.Listen(fd, 0))
	for err = nil; err == nil; {
		var c net.Conn
		if c, err = net.Dial("unix", path); err == nil {
			defer func() { _ = c.Close() }()
		}
	}
	require.ErrorIs(t, err, syscall.EAGAIN)
	_, err = Listen(t.Context(), "socket", path)
	require.ErrorIs(t, err, ErrInUse)
	require.FileExists(t, path)

	other := filepath.Join(filepath.Dir(path), "d")
	d, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: other, Net: "unixgram"})
	require.NoError(t, err)
	defer func() { _ = d.Close() }()
	_, err = Listen(t.Context(), "x socket", other)
	require.ErrorContains(t, err, "look whether somebody answers on the x socket", "nobody knows")
	require.FileExists(t, other)
}

// TestOneListens: of many that find the same stale socket, or none, at the same time.
func TestOneListens(t *testing.T) {
	for round := range 40 {
		path := filepath.Join(place(t), "s")
		if round%2 == 0 {
			old, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
			require.NoError(t, err)
			old.SetUnlinkOnClose(false)
			require.NoError(t, old.Close())
		}
		const many = 8
		got := make(chan net.Listener, many)
		begin := make(chan struct{})
		var all sync.WaitGroup
		for range many {
			all.Go(func() {
				<-begin
				l, err := Listen(t.Context(), "socket", path)
				if err != nil {
					l = nil
				}
				if err != nil && !errors.Is(err, ErrInUse) {
					t.Error(err)
				}
				got <- l
			})
		}
		close(begin)
		all.Wait()
		close(got)
		won := 0
		for l := range got {
			if l != nil {
				won++
				t.Cleanup(func() { _ = l.Close() })
			}
		}
		require.Equal(t, 1, won, "round %d", round)
		require.NoError(t, Check("socket", path))
	}
}

// TestLockIsWaitedFor: but not for ever.
func TestLockIsWaitedFor(t *testing.T) {
	dir := place(t)
	unlock, err := lockDirectory(t.Context(), dir)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = Listen(ctx, "x socket", filepath.Join(dir, "s"))
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "directory of the x socket: lock ")
	unlock()
	listen(t, filepath.Join(dir, "s"))
	_, err = lockDirectory(t.Context(), filepath.Join(dir, "none"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

// TestCloseRemovesOnce: a socket that another program has made meanwhile stays.
func TestCloseRemovesOnce(t *testing.T) {
	path := filepath.Join(place(t), "s")
	l := listen(t, path)
	require.NoError(t, l.Close())
	require.NoFileExists(t, path)
	listen(t, path)
	require.NoError(t, l.Close())
	require.FileExists(t, path)

	path = filepath.Join(place(t), "s")
	gone := listen(t, path)
	require.NoError(t, os.Remove(path))
	require.NoError(t, gone.Close(), "nothing is left to remove")

	path = filepath.Join(place(t), "s")
	pushed := listen(t, path)
	require.NoError(t, os.Remove(path))
	listen(t, path)
	require.NoError(t, pushed.Close())
	require.NoError(t, Check("socket", path), "it is another's")
}

// TestNobodyIsNoPeer: where the credentials cannot be asked for there is no peer.
func TestNobodyIsNoPeer(t *testing.T) {
	ours, theirs := net.Pipe()
	defer func() { _, _ = ours.Close(), theirs.Close() }()
	_, err := PeerOf(ours)
	require.ErrorContains(t, err, "not a unix connection")

	_, err = PeerOf(&net.UnixConn{})
	require.ErrorIs(t, err, syscall.EINVAL)

	path := filepath.Join(place(t), "s")
	listen(t, path)
	closed, err := net.Dial("unix", path)
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	_, err = PeerOf(closed)
	require.ErrorIs(t, err, net.ErrClosed)

	c, err := net.DialTimeout("unix", path, 10*time.Second)
	require.NoError(t, err)
	defer func() { _ = c.Close() }()
	null, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer func() { _ = null.Close() }()
	raw, err := c.(*net.UnixConn).SyscallConn() //nolint:forcetypeassert // a test
	require.NoError(t, err)
	var dup error
	require.NoError(t, raw.Control(func(fd uintptr) { dup = unix.Dup3(int(null.Fd()), int(fd), unix.O_CLOEXEC) }))
	require.NoError(t, dup)
	_, err = PeerOf(c)
	require.ErrorIs(t, err, syscall.ENOTSOCK)
}
