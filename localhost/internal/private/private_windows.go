package private

import (
	"io"
	"io/fs"
	"os"
)

// private: access control lists are inherited from the user's profile, where the
// directories are; modes say nothing here.
func private(fs.FileInfo) bool { return true }

// read reads at most one byte more than limit.
func read(path string, limit int) ([]byte, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, notPrivate(path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	return io.ReadAll(io.LimitReader(f, int64(limit)+1))
}
