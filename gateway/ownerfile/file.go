package ownerfile

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Access is what others may do with a file.
type Access int

const (
	// Private: nobody else may read or write it.
	Private Access = iota
	// Trusted: others may read it, nobody else may write it.
	Trusted
)

// ErrUnsafe matches every refusal because of a file's kind, owner or mode.
var ErrUnsafe = errors.New("unsafe file")

// UnsafeError says why a file is not what an owner may rely on.
type UnsafeError struct {
	Path string
	Why  string
	Hint string // a command or an action that mends it
}

func (e *UnsafeError) Error() string { return fmt.Sprintf("%s: %s", e.Path, e.Why) }

// Is makes an UnsafeError match ErrUnsafe.
func (e *UnsafeError) Is(target error) bool { return target == ErrUnsafe }

// Read returns the content of a regular file of at most limit bytes that only its
// owner can have written, and for Private, read. The checks are made on the open
// file. Errors: those of os, *UnsafeError.
func Read(path string, a Access, limit int64) ([]byte, error) {
	f, err := open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return readOpen(path, f, a, limit)
}

// readOpen is Read of a file that is open.
func readOpen(path string, f *os.File, a Access, limit int64) ([]byte, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if !info.Mode().IsRegular() {
		return nil, &UnsafeError{Path: path, Why: "is not a regular file"}
	}
	if err := checkAccess(path, f, info, a); err != nil {
		return nil, err
	}
	if size := info.Size(); size > limit { // before anything is read
		return nil, &UnsafeError{Path: path, Why: fmt.Sprintf("is larger than %d bytes: it has %d", limit, size)}
	}
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if int64(len(b)) > limit {
		return nil, &UnsafeError{Path: path, Why: fmt.Sprintf("is larger than %d bytes", limit)}
	}
	return b, nil
}

// maxLinks bounds the links that Follow goes along.
const maxLinks = 8

// Follow resolves symbolic links at the end of a path, at most 8, which only the owner
// or the system can have made: each link and its directory are checked. The result is
// for Read, which checks the file; it need not exist. On Windows no link is followed,
// and Read refuses it. Errors: those of os, *UnsafeError.
func Follow(path string) (string, error) {
	for range maxLinks + 1 {
		info, err := os.Lstat(path)
		if errors.Is(err, os.ErrNotExist) || err == nil && info.Mode()&os.ModeSymlink == 0 {
			return path, nil
		}
		if err == nil {
			err = checkLink(path, info)
		}
		if err != nil {
			return "", err
		}
		target, err := os.Readlink(path)
		if err != nil {
			return "", err
		}
		if !filepath.IsAbs(target) {
			target = filepath.Dir(path) + string(filepath.Separator) + target // not cleaned: .. is of where a link leads
		}
		path = target
	}
	return "", &UnsafeError{Path: path, Why: "is behind too many symbolic links"}
}

// Create makes a new private file with this content. It is durable when Create
// returns, and not there at all if it fails; an existing file is os.ErrExist.
func Create(path string, data []byte) (err error) {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, ".new-*")
	if err != nil {
		return fmt.Errorf("create %s: %w", path, err)
	}
	defer func() { _ = os.Remove(f.Name()) }()
	err = errors.Join(makePrivate(f), write(f, data), f.Close())
	if err == nil {
		err = os.Link(f.Name(), path) // fails if path exists, unlike a rename
	}
	if err != nil {
		return fmt.Errorf("create %s: %w", path, err)
	}
	return syncDir(dir)
}

// Replace makes a private file with this content, in place of one that may be
// there: readers see the old content or the new one. It is durable when Replace
// returns.
func Replace(path string, data []byte) error {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, ".new-*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	err = errors.Join(makePrivate(f), write(f, data), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, errors.Join(err, os.Remove(f.Name())))
	}
	return syncDir(dir)
}

func write(f *os.File, data []byte) error {
	if _, err := f.Write(data); err != nil {
		return err
	}
	return f.Sync()
}
