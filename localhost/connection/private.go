package connection

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lendcli/lend/localhost/internal/filelock"
	"github.com/lendcli/lend/localhost/internal/private"
)

func privateDir(path string) error { return private.Dir(path) }

func checkDir(path string) error { return private.CheckDir(path) }

// readPrivate reads a file of at most limit bytes that only this user can use.
func readPrivate(path string, limit int) ([]byte, error) {
	data, err := private.Read(path, limit)
	if errors.Is(err, private.ErrTooLarge) {
		err = fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return data, err
}

// lockWait bounds how long another process of ours is waited for.
const lockWait = 30 * time.Second

// lockFile waits for the exclusive lock on a file, which it makes.
func lockFile(path string) (*filelock.Lock, error) {
	ctx, cancel := context.WithTimeout(context.Background(), lockWait)
	defer cancel()
	return filelock.Exclusive(ctx, path)
}
