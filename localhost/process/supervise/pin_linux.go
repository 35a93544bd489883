package supervise

import (
	"errors"
	"strconv"

	"golang.org/x/sys/unix"
)

// firstPinned is the lowest number of a pinned descriptor: above all that a fork
// moves about on the way to the child's own.
const firstPinned = 100

// openPinned opens what is to be executed and holds it as it is until the descriptor
// is closed: the caller executes that, wherever its name leads by then. ESTALE: it
// is not the file that was verified. ETXTBSY: somebody has it open for writing.
//
// A lease keeps anyone from opening it for writing meanwhile, and the kernel does as
// soon as it is executed, so that no byte changes between the look and the first
// instruction. A file system without leases leaves that to the time of the change,
// until the look.
func openPinned(path string, want Pin) (int, error) {
	low, err := unix.Open(path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	fd, err := unix.FcntlInt(uintptr(low), unix.F_DUPFD_CLOEXEC, firstPinned)
	_ = unix.Close(low)
	if err != nil {
		return -1, err
	}
	if err := hold(fd, want); err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// hold takes the lease, then looks: what was changed before shows, and nothing
// changes after.
func hold(fd int, want Pin) error {
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_RDLCK); errors.Is(err, unix.EAGAIN) {
		return unix.ETXTBSY
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	got := Pin{uint64(st.Dev), st.Ino, st.Size, st.Mtim.Nano(), st.Ctim.Nano()} //nolint:unconvert // differs by architecture
	if got != want || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return unix.ESTALE
	}
	return nil
}

func fdPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }
