//go:build linux || darwin

package main

import (
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// takeDescriptors closes what this program was started with on exec, so that none of its
// children has it. It comes before anything else, since what the program opens itself is
// told by nothing but being closed on exec already.
func takeDescriptors() *descriptors {
	d := &descriptors{given: map[int]bool{}}
	for _, fd := range openDescriptors() {
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if fd > 2 && err == nil && flags&unix.FD_CLOEXEC == 0 {
			unix.CloseOnExec(fd)
			d.given[fd] = true
		}
	}
	return d
}

// openDescriptors lists what may be open: where the system does not tell, what any shell
// can give.
func openDescriptors() (all []int) {
	dir := "/dev/fd"
	if runtime.GOOS == "linux" {
		dir = "/proc/self/fd" // there without /dev
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		for fd := range 1024 {
			all = append(all, fd)
		}
		return all
	}
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil {
			all = append(all, fd)
		}
	}
	return all
}
