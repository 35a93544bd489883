//go:build unix

package stdio

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// streams are a caller's ends of three pipes, with the set that has the others.
type streams struct {
	set      *Set
	in       *os.File
	out, err *os.File
}

func newStreams(t *testing.T) *streams {
	t.Helper()
	inR, in, err := os.Pipe()
	require.NoError(t, err)
	out, outW, err := os.Pipe()
	require.NoError(t, err)
	errs, errW, err := os.Pipe()
	require.NoError(t, err)
	s := &streams{in: in, out: out, err: errs}
	s.set = take(t, inR, outW, errW)
	t.Cleanup(func() { _, _, _ = in.Close(), out.Close(), errs.Close() })
	return s
}

// take makes a set of copies, and closes the files.
func take(t *testing.T, files ...*os.File) *Set {
	t.Helper()
	var fds [3]int
	for i, f := range files {
		fd, err := unix.Dup(int(f.Fd()))
		require.NoError(t, err)
		require.NoError(t, f.Close())
		fds[i] = fd
	}
	s, err := New(fds)
	require.NoError(t, err)
	return s
}

func TestBytesPass(t *testing.T) {
	t.Parallel()
	s := newStreams(t)
	data := bytes.Repeat([]byte("0123456789abcdef"), 20000) // larger than a pipe
	go func() {
		_, _ = s.in.Write(data)
		_ = s.in.Close()
	}()
	done := make(chan error, 1)
	go func() {
		_, err := io.Copy(s.set.Stdout(), s.set.Stdin())
		done <- err
	}()
	got := make([]byte, len(data))
	_, err := io.ReadFull(s.out, got)
	require.NoError(t, err)
	require.NoError(t, <-done)
	require.True(t, bytes.Equal(data, got))
	_, err = s.set.Stderr().Write([]byte("e"))
	require.NoError(t, err)
	require.NoError(t, s.set.Close())
	rest, err := io.ReadAll(s.err)
	require.NoError(t, err)
	require.Equal(t, "e", string(rest))
}

// An interrupted reader takes nothing of what comes later.
func TestReadIsInterrupted(t *testing.T) {
	t.Parallel()
	s := newStreams(t)
	in := s.set.Stdin()
	require.NoError(t, in.SetReadDeadline(time.Time{}))
	done := make(chan error, 1)
	go func() {
		_, err := in.Read(make([]byte, 10))
		done <- err
	}()
	require.NoError(t, in.SetReadDeadline(time.Unix(1, 0)))
	require.ErrorIs(t, <-done, ErrStopped)
	_, err := s.in.WriteString("later")
	require.NoError(t, err)
	_, err = in.Read(make([]byte, 10))
	require.ErrorIs(t, err, ErrStopped)
	left := make([]byte, 10)
	n, err := unix.Read(s.set.fds[0], left)
	require.NoError(t, err)
	require.Equal(t, "later", string(left[:n]), "it is still there for others")

	_, err = s.set.Stdout().Write([]byte("x"))
	require.NoError(t, err, "the outputs go on")
	require.NoError(t, s.set.Close())
}

func TestWriteIsInterrupted(t *testing.T) {
	t.Parallel()
	s := newStreams(t)
	done := make(chan error, 1)
	go func() {
		_, err := s.set.Stdout().Write(make([]byte, 1<<20)) // nobody reads
		done <- err
	}()
	s.set.Stop()
	require.ErrorIs(t, <-done, ErrStopped)
	_, err := s.set.Stdin().Read(make([]byte, 1))
	require.ErrorIs(t, err, ErrStopped)
	require.NoError(t, s.set.Close())
}

// A reader that has enough is an error of the write, not a signal.
func TestReaderThatLeaves(t *testing.T) {
	t.Parallel()
	s := newStreams(t)
	require.NoError(t, s.out.Close())
	_, err := s.set.Stdout().Write([]byte("x"))
	require.ErrorIs(t, err, unix.EPIPE)
	require.NoError(t, s.set.Close())
}

// The modes of the caller's files stay as they are, and files and the null device work.
func TestFiles(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "out")
	in, err := os.Open(os.DevNull)
	require.NoError(t, err)
	out, err := os.Create(path)
	require.NoError(t, err)
	errs, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	require.NoError(t, err)
	s := take(t, in, out, errs)
	before, err := unix.FcntlInt(uintptr(s.fds[1]), unix.F_GETFL, 0)
	require.NoError(t, err)
	_, err = s.Stdin().Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
	_, err = s.Stdout().Write(bytes.Repeat([]byte("a"), 3<<20))
	require.NoError(t, err)
	_, err = s.Stderr().Write(make([]byte, 1<<20))
	require.NoError(t, err)
	after, err := unix.FcntlInt(uintptr(s.fds[1]), unix.F_GETFL, 0)
	require.NoError(t, err)
	require.Equal(t, before, after)
	require.NoError(t, s.Close())
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.EqualValues(t, 3<<20, info.Size())
}

func TestBadDescriptorsAreErrors(t *testing.T) {
	t.Parallel()
	s, err := New([3]int{-1, -1, -1})
	require.NoError(t, err)
	s.fds[0] = 1 << 20
	_, err = s.Stdin().Read(make([]byte, 1))
	require.Error(t, err)
	s.fds[0] = -1
	require.NoError(t, s.Close())
}

// What cannot be read says why at once: it never waits, and is no end of the input.
func TestInputThatCannotBeRead(t *testing.T) {
	t.Parallel()
	dir, err := os.Open(t.TempDir())
	require.NoError(t, err)
	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	require.NoError(t, err)
	only, err := os.OpenFile(file.Name(), os.O_WRONLY, 0)
	require.NoError(t, err)
	require.NoError(t, file.Close())
	r, w, err := os.Pipe() // its end for writing, of which poll says nothing
	require.NoError(t, err)
	t.Cleanup(func() { _ = r.Close() })
	for _, c := range []struct {
		in   *os.File
		want error
	}{{dir, unix.EISDIR}, {only, unix.EBADF}, {w, unix.EBADF}} {
		out, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
		require.NoError(t, err)
		errs, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
		require.NoError(t, err)
		s := take(t, c.in, out, errs)
		_, err = s.Stdin().Read(make([]byte, 1))
		require.ErrorIs(t, err, c.want)
		require.ErrorContains(t, err, "read: ")
		require.NoError(t, s.Close())
	}
}

// Who still reads or writes when all is closed gets no other file's bytes.
func TestCloseWaits(t *testing.T) {
	t.Parallel()
	s := newStreams(t)
	done := make(chan error, 2)
	in, out := s.set.Stdin(), s.set.Stdout()
	go func() {
		_, err := in.Read(make([]byte, 1))
		done <- err
	}()
	go func() {
		_, err := out.Write(make([]byte, 1<<20))
		done <- err
	}()
	require.NoError(t, s.set.Close())
	require.NoError(t, s.set.Close())
	require.ErrorIs(t, <-done, ErrStopped)
	require.ErrorIs(t, <-done, ErrStopped)
	_, err := in.Read(make([]byte, 1))
	require.ErrorIs(t, err, ErrStopped)
	_, err = out.Write(make([]byte, 1))
	require.ErrorIs(t, err, ErrStopped)
}

// Several writers of one pipe, which fills between the look at it and the write, hold
// nobody up; and each can be interrupted.
func TestSharedPipe(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() { _ = r.Close() })
	null, err := os.Open(os.DevNull)
	require.NoError(t, err)
	t.Cleanup(func() { _ = null.Close() })
	const writers = 4
	var sets []*Set
	done := make(chan error, writers)
	for range writers {
		var fds [3]int
		for i, f := range []*os.File{null, w, null} {
			fds[i], err = unix.Dup(int(f.Fd()))
			require.NoError(t, err)
		}
		s, err := New(fds)
		require.NoError(t, err)
		sets = append(sets, s)
		go func() {
			_, err := s.Stdout().Write(make([]byte, 64<<20))
			done <- err
		}()
	}
	require.NoError(t, w.Close())
	if _, err := writeNow(sets[0].fds[1], []byte{0}); cannotNow(err) && err != nil {
		t.Log("this system waits")
		_ = r.Close()
		for range writers {
			<-done
		}
	} else {
		for range 200 {
			_, err := unix.Read(int(r.Fd()), make([]byte, 5000))
			require.NoError(t, err)
		}
		for _, s := range sets {
			s.Stop()
		}
		for range writers {
			require.ErrorIs(t, <-done, ErrStopped)
		}
	}
	for _, s := range sets {
		require.NoError(t, s.Close())
	}
}

// A pipe is filled at once where the system can, and the last byte arrives all the same.
func TestWriterKinds(t *testing.T) {
	t.Parallel()
	s := newStreams(t)
	require.False(t, s.set.Stdout().Terminal())
	out := s.set.Stdout()
	_, err := out.Write([]byte("x"))
	require.NoError(t, err)
	if out.now {
		require.Equal(t, fitsNow, out.fits)
	} else {
		require.Equal(t, fitsPipe, out.fits)
	}
	require.NoError(t, s.set.Close())

	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	require.NoError(t, err)
	other := os.NewFile(uintptr(pair[1]), "other")
	t.Cleanup(func() { _ = other.Close() })
	second, err := unix.Dup(pair[0])
	require.NoError(t, err)
	third, err := unix.Dup(pair[0])
	require.NoError(t, err)
	set, err := New([3]int{pair[0], second, third}) // as Node gives its children
	require.NoError(t, err)
	data := bytes.Repeat([]byte("0123456789"), 100000)
	done := make(chan error, 1)
	go func() {
		_, err := set.Stdout().Write(data)
		done <- err
	}()
	got := make([]byte, len(data))
	_, err = io.ReadFull(other, got)
	require.NoError(t, err)
	require.NoError(t, <-done)
	require.True(t, bytes.Equal(data, got))
	_, err = other.WriteString("back")
	require.NoError(t, err)
	n, err := set.Stdin().Read(got)
	require.NoError(t, err)
	require.Equal(t, "back", string(got[:n]))
	require.NoError(t, set.Close())
}
