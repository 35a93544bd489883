package signature

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"

	"github.com/lendcli/lend/localhost/internal/atomicfile"
	"github.com/lendcli/lend/localhost/internal/filelock"
	"github.com/lendcli/lend/localhost/internal/private"
)

// File is the owner's list of publishers. Only the owner may be able to use the file: it
// is refused otherwise. Its methods may be called from any goroutine, and several
// processes may share it.
type File struct {
	path string

	mu    sync.Mutex  // guards what follows
	info  fs.FileInfo // of the file as it was read; nil: it was not there
	trust *Trust      // as it was read; nil: not yet
}

// At is the list at path, absolute; it need not exist. With "" there is none: it trusts
// nobody, requires nothing and takes no edit.
func At(path string) *File { return &File{path: path} }

// Load returns the list as it is now; one that does not exist trusts nobody and requires
// nothing. It is the same pointer as long as the file is unchanged, and then costs one
// lstat. The result must not be changed.
func (f *File) Load() (*Trust, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	info, err := f.stat()
	if err != nil {
		return nil, fmt.Errorf("read list of publishers: %w", err)
	}
	if f.trust != nil && same(f.info, info) {
		return f.trust, nil
	}
	t := &Trust{}
	if info != nil {
		data, err := private.Read(f.path, maxTrustBytes)
		if err != nil {
			return nil, fmt.Errorf("read list of publishers: %w", err)
		}
		if t, err = Parse(data); err != nil {
			return nil, err
		}
	}
	f.info, f.trust = info, t
	return t, nil
}

// stat is nil for a file that is not there.
func (f *File) stat() (fs.FileInfo, error) {
	if f.path == "" {
		return nil, nil
	}
	info, err := os.Lstat(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return info, err
}

func same(a, b fs.FileInfo) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return os.SameFile(a, b) && a.Size() == b.Size() && a.Mode() == b.Mode() && a.ModTime().Equal(b.ModTime())
}

// Edit changes the list: change gets a copy, and what it leaves there is checked and
// replaces the file at once, mode 0600. Edits of several processes take turns.
func (f *File) Edit(ctx context.Context, change func(*Trust) error) error {
	if f.path == "" {
		return errors.New("edit list of publishers: there is none")
	}
	l, err := filelock.Exclusive(ctx, f.path+".lock")
	if err != nil {
		return fmt.Errorf("edit list of publishers: %w", err)
	}
	defer func() { _ = l.Close() }()
	now, err := f.Load()
	if err != nil {
		return err
	}
	t := Trust{slices.Clone(now.Publishers), now.RequireAll, slices.Clone(now.Require)}
	if err := change(&t); err != nil {
		return err
	}
	if err := t.check(); err != nil {
		return fmt.Errorf("edit list of publishers: %w", err)
	}
	data, err := t.marshal()
	if err != nil {
		return fmt.Errorf("edit list of publishers: %w", err)
	}
	if len(data) > maxTrustBytes {
		return fmt.Errorf("edit list of publishers: more than %d bytes", maxTrustBytes)
	}
	if err := atomicfile.Write(f.path, data); err != nil {
		return fmt.Errorf("edit list of publishers: %w", err)
	}
	return nil
}
