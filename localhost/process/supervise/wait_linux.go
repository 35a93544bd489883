package supervise

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// attentive is how long after the last event a wait is one that the Go scheduler does
// not know of.
const attentive = 20 * time.Millisecond

// poll is poll(2) for at most timeout milliseconds. It returns how many of set are
// ready; less than one: none, or interrupted.
//
// A wait that the Go runtime knows of wakes its monitor, which looks every 20 µs,
// takes the processor away and gives it back afterwards: several switches of threads
// for each of the two waits of an operation, more than all the rest of a supervisor's
// work. There is nobody to give a processor to: one goroutine does it all. But one
// that is idle must not keep the monitor looking, so that it lets go after a while.
func (s *server) poll(set []unix.PollFd, timeout int) int {
	if left := attentive - time.Since(s.happened); left > 0 {
		wait := min(int(left/time.Millisecond)+1, timeout)
		t := unix.NsecToTimespec(int64(wait) * int64(time.Millisecond))
		n, _, e := unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&set[0])), uintptr(len(set)),
			uintptr(unsafe.Pointer(&t)), 0, 0, 0)
		switch {
		case e != 0:
			return -1
		case n > 0:
			s.happened = time.Now()
			return int(n)
		case wait == timeout:
			return 0
		}
		timeout -= wait
	}
	n, _ := unix.Poll(set, timeout)
	if n > 0 {
		s.happened = time.Now()
	}
	return n
}

// linger waits for a message for as long as there may be one soon.
func (s *server) linger() {
	set := [1]unix.PollFd{{Fd: socket, Events: unix.POLLIN}}
	if left := attentive - time.Since(s.happened); left > 0 {
		_ = s.poll(set[:], int(left/time.Millisecond)) // whatever it says, a receive follows
	}
}
