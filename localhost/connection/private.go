package connection

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/lendcli/lend/localhost/internal/filelock"
)

// privateDir makes a directory with mode 0700 unless it exists, and checks it.
func privateDir(path string) error {
	err := checkDir(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return checkDir(path)
}

// checkDir refuses a directory that is a link, that others can use, or that is
// another user's.
func checkDir(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if !info.IsDir() || !private(info) {
		return fmt.Errorf("directory %s: %w", path, ErrUnsafe)
	}
	return nil
}

// readPrivate reads a file of at most limit bytes that only this user can use.
func readPrivate(path string, limit int) ([]byte, error) {
	f, err := openPrivate(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || !private(info) {
		return nil, fmt.Errorf("file %s: %w", path, ErrUnsafe)
	}
	data, err := io.ReadAll(io.LimitReader(f, int64(limit)+1))
	if err != nil {
		return nil, err
	}
	if len(data) > limit {
		return nil, fmt.Errorf("file %s has more than %d bytes: %w", path, limit, ErrInvalid)
	}
	return data, nil
}

// lockWait bounds how long another process of ours is waited for.
const lockWait = 30 * time.Second

// lockFile waits for the exclusive lock on a file, which it makes.
func lockFile(path string) (*filelock.Lock, error) {
	ctx, cancel := context.WithTimeout(context.Background(), lockWait)
	defer cancel()
	return filelock.Exclusive(ctx, path)
}
