//go:build unix

package stdio

import (
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// ErrStopped says that a read or write was interrupted.
var ErrStopped = errors.New("stopped")

// Sizes of one write, in bytes, by what is written to.
const (
	fitsPipe     = 4096      // PIPE_BUF: poll says that so much fits
	fitsNow      = 256 << 10 // where a write takes what fits and does not wait
	fitsTerminal = 256
	fitsFile     = 1 << 20
)

// Set is the standard streams of one caller. The caller must Close it.
type Set struct {
	input  wake // interrupts reads
	output wake // interrupts writes

	mu     sync.RWMutex // held for reading by each read and write; guards what follows
	fds    [3]int
	closed bool
}

// New takes the descriptors over, and closes them if it fails.
func New(fds [3]int) (*Set, error) {
	s := &Set{fds: fds, input: wake{-1, -1, &sync.Once{}}, output: wake{-1, -1, &sync.Once{}}}
	if err := errors.Join(s.input.open(), s.output.open()); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Stdin returns the reader of the input. A file that is open for writing alone fails at
// once, as read says it, since nobody knows when poll would.
func (s *Set) Stdin() *Reader {
	r := &Reader{set: s}
	if mode, err := unix.FcntlInt(uintptr(s.fds[0]), unix.F_GETFL, 0); err == nil && mode&unix.O_ACCMODE == unix.O_WRONLY {
		r.bad = unix.EBADF
	}
	var st unix.Stat_t
	r.now = unix.Fstat(s.fds[0], &st) == nil && canNow(uint32(st.Mode))
	return r
}

// Stdout returns the writer of the output.
func (s *Set) Stdout() *Writer { return newWriter(s, 1) }

// Stderr returns the writer of the error output.
func (s *Set) Stderr() *Writer { return newWriter(s, 2) }

// Stop interrupts all reads and writes, now and later: ErrStopped. It may be called
// from any goroutine until Close.
func (s *Set) Stop() {
	s.input.raise()
	s.output.raise()
}

// Close interrupts what reads or writes, waits for it, and closes the descriptors. It
// is idempotent.
func (s *Set) Close() error {
	s.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	var all error
	for _, fd := range append(s.fds[:], s.input.r, s.input.w, s.output.r, s.output.w) {
		if fd >= 0 {
			all = errors.Join(all, unix.Close(fd))
		}
	}
	return all
}

// wake is a pipe that becomes readable once and for all.
type wake struct {
	r, w int
	once *sync.Once
}

func (w *wake) open() error {
	var p [2]int
	if err := pipe(&p); err != nil {
		return os.NewSyscallError("pipe", err)
	}
	w.r, w.w = p[0], p[1]
	return nil
}

func (w *wake) raise() {
	w.once.Do(func() { _, _ = unix.Write(w.w, []byte{0}) }) // an empty pipe has room
}

// await waits until fd is ready for events; ErrStopped if w was raised.
func (w *wake) await(fd int, events int16) error {
	p := []unix.PollFd{{Fd: int32(w.r), Events: unix.POLLIN}, {Fd: int32(fd), Events: events}}
	for {
		_, err := unix.Poll(p, -1)
		switch {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN):
			continue
		case err != nil:
			return os.NewSyscallError("poll", err)
		case p[0].Revents != 0:
			return ErrStopped
		case p[1].Revents&unix.POLLNVAL != 0:
			return os.ErrClosed
		case p[1].Revents != 0:
			return nil
		}
	}
}

// Reader reads a caller's input. One goroutine reads.
type Reader struct {
	set *Set
	now bool
	bad error // what every read says; nil: it can be read
}

// Read returns ErrStopped once it is interrupted.
func (r *Reader) Read(b []byte) (int, error) {
	r.set.mu.RLock()
	defer r.set.mu.RUnlock()
	if r.set.closed {
		return 0, ErrStopped
	}
	if r.bad != nil {
		return 0, os.NewSyscallError("read", r.bad)
	}
	fd := r.set.fds[0]
	for len(b) > 0 {
		if err := r.set.input.await(fd, unix.POLLIN); err != nil {
			return 0, err
		}
		read := unix.Read
		if r.now {
			read = readNow
		}
		n, err := read(fd, b)
		switch {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN):
		case r.now && err != nil && cannotNow(err):
			r.now = false
		case err != nil:
			return 0, os.NewSyscallError("read", err)
		case n == 0:
			return 0, io.EOF
		default:
			return n, nil
		}
	}
	return 0, nil
}

// SetReadDeadline interrupts the reads for good, for any time but the zero one: nobody
// wants the input any more. It is for use before Close.
func (r *Reader) SetReadDeadline(t time.Time) error {
	if !t.IsZero() {
		r.set.input.raise()
	}
	return nil
}

// Writer writes to one of a caller's outputs. One goroutine writes.
type Writer struct {
	set         *Set
	which, fits int // fits is how much may be written at once
	now         bool
	terminal    bool
}

func newWriter(s *Set, which int) *Writer {
	w := &Writer{set: s, which: which, fits: fitsPipe}
	var st unix.Stat_t
	if err := unix.Fstat(s.fds[which], &st); err != nil {
		return w
	}
	switch kind := st.Mode & unix.S_IFMT; {
	case kind == unix.S_IFREG, kind == unix.S_IFCHR && null(&st):
		w.fits = fitsFile
	case kind == unix.S_IFCHR:
		w.fits, w.terminal = fitsTerminal, true
	case canNow(uint32(st.Mode)):
		w.fits, w.now = fitsNow, true
	}
	return w
}

// Terminal tells whether it may be a terminal.
func (w *Writer) Terminal() bool { return w.terminal }

// null tells whether it is the null device.
func null(st *unix.Stat_t) bool {
	var of unix.Stat_t
	return unix.Stat(os.DevNull, &of) == nil && of.Rdev == st.Rdev
}

// Write returns ErrStopped once it is interrupted.
func (w *Writer) Write(b []byte) (int, error) {
	w.set.mu.RLock()
	defer w.set.mu.RUnlock()
	if w.set.closed {
		return 0, ErrStopped
	}
	fd, done := w.set.fds[w.which], 0
	for done < len(b) {
		if err := w.set.output.await(fd, unix.POLLOUT); err != nil {
			return done, err
		}
		write := unix.Write
		if w.now {
			write = writeNow
		}
		n, err := write(fd, b[done:min(len(b), done+w.fits)])
		switch {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN):
		case w.now && err != nil && cannotNow(err):
			w.now, w.fits = false, fitsPipe
		case err != nil:
			return done, os.NewSyscallError("write", err)
		default:
			done += n
		}
	}
	return done, nil
}
