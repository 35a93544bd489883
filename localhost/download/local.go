package download

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
)

// FromFile fills a slot from a file that the owner has, by its absolute path. It is
// copied and checked like everything that comes, and no network is needed. Links are
// followed: it is what an owner named.
func FromFile(at string) Fill {
	return func(ctx context.Context, w io.Writer) error {
		if !filepath.IsAbs(at) {
			return errors.New("the archive's path must be absolute")
		}
		f, err := os.OpenFile(at, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a FIFO must not hang
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }() // only read
		if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
			return errors.Join(fmt.Errorf("%s is not a regular file", filepath.Base(at)), err)
		}
		_, err = io.Copy(w, &reader{ctx, f})
		return err
	}
}
