package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
)

// descriptors are those beyond the standard streams that this program was started with,
// and has not read yet. No child of its own gets one: neither what carries a passphrase or
// a lease, nor what whoever started it had left open.
type descriptors struct {
	mu    sync.Mutex // guards given
	given map[int]bool
	any   bool // this system does not tell which were given
}

// take tells whether fd was given, and lets it be read: once, since the number may be
// that of a file of this program's own afterwards, such as the record of what was lent.
func (d *descriptors) take(fd int) bool {
	if fd <= 2 || d == nil {
		return fd == 0
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	given := d.any || d.given[fd]
	delete(d.given, fd)
	return given
}

// read reads at most limit bytes of a descriptor that this program was started with, and
// closes it. Any other is left alone.
func (d *descriptors) read(fd int, limit int64) ([]byte, error) {
	if !d.take(fd) {
		return nil, fmt.Errorf("descriptor %d was not given; next: %d< FILE", fd, max(fd, 3))
	}
	f := os.NewFile(uintptr(fd), "descriptor "+strconv.Itoa(fd))
	if f == nil {
		return nil, os.ErrInvalid
	}
	data, err := io.ReadAll(io.LimitReader(f, limit))
	return data, joinClose(err, f.Close)
}
