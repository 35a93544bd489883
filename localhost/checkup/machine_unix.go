//go:build linux || darwin

package checkup

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// disk looks at the file system of a directory, or of what is above it.
func (f *Facts) disk(dir string) {
	for {
		var s unix.Statfs_t
		err := unix.Statfs(dir, &s)
		if errors.Is(err, os.ErrNotExist) && filepath.Dir(dir) != dir {
			dir = filepath.Dir(dir)
			continue
		}
		if err != nil || s.Bsize <= 0 {
			f.FreeProblem = "the file system does not tell"
			return
		}
		free := s.Bavail * uint64(s.Bsize)
		f.Free = &free
		return
	}
}

// files reads the limit that this process has; that of a gateway is the same if it is
// started in the same way.
func (f *Facts) files() {
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &l) == nil {
		f.OpenFiles = l.Cur
	}
}
