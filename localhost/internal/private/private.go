package private

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// Errors of this package.
var (
	// ErrUnsafe: a file or directory of ours is not private to this user.
	ErrUnsafe = errors.New("not private to this user")
	// ErrTooLarge: a file has more bytes than it may have.
	ErrTooLarge = errors.New("file is too large")
)

// Dir makes a directory with mode 0700 unless it exists, and checks it.
func Dir(path string) error {
	err := CheckDir(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return CheckDir(path)
}

// CheckDir refuses a directory that is a link, that others can use, or that is
// another user's: ErrUnsafe.
func CheckDir(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if !info.IsDir() || !private(info) {
		return fmt.Errorf("directory %s: %w", path, ErrUnsafe)
	}
	return nil
}

// Read reads a file of at most limit bytes that only this user can use. It is
// ErrUnsafe for another one and for a link, ErrTooLarge for more bytes.
func Read(path string, limit int) ([]byte, error) {
	data, err := read(path, limit)
	if err != nil {
		return nil, err
	}
	if len(data) > limit {
		return nil, fmt.Errorf("file %s has more than %d bytes: %w", path, limit, ErrTooLarge)
	}
	return data, nil
}

func notPrivate(path string) error { return fmt.Errorf("file %s: %w", path, ErrUnsafe) }
