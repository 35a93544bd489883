package signature

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
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
	path   string
	memory string // the second place, "" for none

	mu         sync.Mutex  // guards what follows
	info       fs.FileInfo // of the file as it was read; nil: it was not there
	memoryInfo fs.FileInfo // of the second place; nil: it was not there, or not asked
	trust      *Trust      // as it was read; nil: not yet
}

// At is the list at path, absolute; it need not exist. With "" there is none: it trusts
// nobody, requires nothing and takes no edit.
func At(path string) *File { return &File{path: path} }

// AtRemembering is At with a second place, an absolute path in another directory or
// under another name, in which each Edit writes down what has to be signed, while
// anything has to be. It is asked while the list is not there: a list that is lost trusts
// nobody, and requires what it required.
func AtRemembering(path, memory string) *File { return &File{path: path, memory: memory} }

// FileError says that the list, or what is remembered of it, cannot be used. Then nobody
// knows what is required, and nothing is added or started.
type FileError struct {
	Path string // absolute
	Err  error
}

func (e *FileError) Error() string { return "read list of publishers: " + e.Err.Error() }

// Unwrap returns the cause.
func (e *FileError) Unwrap() error { return e.Err }

// Fix is what mends it, for the owner, in commands.
func (e *FileError) Fix() string {
	info, err := os.Lstat(e.Path)
	switch mode := errors.Is(e.Err, private.ErrUnsafe) || errors.Is(e.Err, fs.ErrPermission); {
	case err == nil && mode && info.Mode().IsRegular() && info.Mode().Perm() != 0o600:
		return "chmod 600 " + e.Path
	case errors.Is(err, fs.ErrNotExist):
		return "lend publisher list"
	case err != nil:
		return "chmod 700 " + filepath.Dir(e.Path)
	}
	return "restore it from a copy, or: mv " + e.Path + " " + e.Path + ".damaged, then lend publisher add PUBLISHER and lend publisher require"
}

// Load returns the list as it is now; one that does not exist trusts nobody, and requires
// what is remembered, else nothing. It is the same pointer as long as the file is
// unchanged, and then costs one lstat, without a list two. The result must not be
// changed. An error is a *FileError.
func (f *File) Load() (*Trust, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	info, err := stat(f.path)
	if err != nil {
		return nil, &FileError{f.path, err}
	}
	var memory fs.FileInfo
	if info == nil {
		if memory, err = stat(f.memory); err != nil {
			return nil, &FileError{f.memory, err}
		}
	}
	if f.trust != nil && same(f.info, info) && same(f.memoryInfo, memory) {
		return f.trust, nil
	}
	t := &Trust{}
	switch {
	case info != nil:
		t, err = read(f.path)
	case memory != nil:
		t, err = read(f.memory)
	}
	if err != nil {
		return nil, err
	}
	if info == nil {
		t = &Trust{RequireAll: t.RequireAll, Require: t.Require}
	}
	f.info, f.memoryInfo, f.trust = info, memory, t
	return t, nil
}

func read(path string) (*Trust, error) {
	data, err := private.Read(path, maxTrustBytes)
	if err != nil {
		return nil, &FileError{path, err}
	}
	t, err := Parse(data)
	if err != nil {
		return nil, &FileError{path, err}
	}
	return t, nil
}

// stat is nil for a file that is not there, and for "".
func stat(path string) (fs.FileInfo, error) {
	if path == "" {
		return nil, nil
	}
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return info, err
}

// Memory says how the list and the second place of it agree.
type Memory string

// The states of a list and its second place.
const (
	Agreed    Memory = "agreed"    // both require the same, or nothing is required
	Lost      Memory = "lost"      // the list is not there, and it required something
	Forgotten Memory = "forgotten" // there is a list, and what it requires is not remembered
)

// Memory compares the list with its second place. Any Edit makes them agree.
func (f *File) Memory() (Memory, error) {
	t, err := f.Load()
	if err != nil {
		return "", err
	}
	info, err := stat(f.path)
	if err != nil {
		return "", &FileError{f.path, err}
	}
	switch {
	case !t.requires() || f.memory == "":
		return Agreed, nil
	case info == nil:
		return Lost, nil
	}
	kept, err := read(f.memory)
	if err != nil || kept.RequireAll != t.RequireAll || !slices.Equal(kept.Require, t.Require) {
		return Forgotten, nil //nolint:nilerr // what cannot be read remembers nothing
	}
	return Agreed, nil
}

func same(a, b fs.FileInfo) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return os.SameFile(a, b) && a.Size() == b.Size() && a.Mode() == b.Mode() && a.ModTime().Equal(b.ModTime())
}

// Edit changes the list: change gets a copy, and what it leaves there is checked and
// replaces the file at once, mode 0600. Edits of several processes take turns. A list
// that is lost is made anew from what is remembered: see AtRemembering.
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
	if err := f.write(&t, data); err != nil {
		return fmt.Errorf("edit list of publishers: %w", err)
	}
	return nil
}

// write replaces the list. Where it requires something, the second place is first: a list
// that requires is remembered whenever this ends. The second place is asked only while
// there is no list.
func (f *File) write(t *Trust, data []byte) error {
	if f.memory != "" && t.requires() {
		kept, err := (&Trust{RequireAll: t.RequireAll, Require: t.Require}).marshal()
		if err != nil {
			return err
		}
		if err := atomicfile.Write(f.memory, kept); err != nil {
			return err
		}
	}
	if err := atomicfile.Write(f.path, data); err != nil || f.memory == "" || t.requires() {
		return err
	}
	if err := os.Remove(f.memory); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
