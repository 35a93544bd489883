//go:build unix

package ownerfile

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// keepAccess gives a new file the mode and the group of the one at path.
func keepAccess(path string, f *os.File, info os.FileInfo) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return &UnsafeError{Path: path, Why: "has no owner that can be read"}
	}
	if st.Nlink > 1 {
		return &UnsafeError{Path: path, Why: fmt.Sprintf("has %d names (hard links), and the others would keep the old content", st.Nlink)}
	}
	if err := f.Chown(-1, int(st.Gid)); err != nil && info.Mode().Perm()&0o070 != 0 {
		return fmt.Errorf("keep the group: %w", err)
	}
	return f.Chmod(info.Mode().Perm())
}

// lockDir waits for other processes that rewrite a file there.
func lockDir(dir string) (release func() error, err error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	for {
		err = syscall.Flock(int(d.Fd()), syscall.LOCK_EX)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", dir, err), d.Close())
	}
	return d.Close, nil // which unlocks
}
