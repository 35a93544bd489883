package shim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"github.com/lendcli/lend/localhost/internal/atomicfile"
	"github.com/lendcli/lend/localhost/internal/filelock"
	"github.com/lendcli/lend/localhost/internal/private"
	"github.com/lendcli/lend/protocol/name"
)

// Errors of a Directory.
var (
	// ErrExists: another shim has the name.
	ErrExists = errors.New("there is another shim of this name")
	// ErrForeign: what has the name was not written by us, or was edited since. It is
	// left alone.
	ErrForeign = errors.New("it is not a shim of ours")
	// ErrNotFound: nothing has the name.
	ErrNotFound = errors.New("there is no such shim")
	// ErrFull: the directory holds as many entries as it may.
	ErrFull = errors.New("too many files in the directory of shims")
	// ErrUnsupported: this system has no POSIX shell to run a shim.
	ErrUnsupported = errors.New("shims need a POSIX shell")
)

const (
	maxEntries = 1024
	lockFile   = ".lock"
	newFile    = ".new"
)

// Directory is one directory of shims: the absolute path of a directory that only
// this user can use, made with mode 0700 by the first Add. Its methods may be called
// from any goroutine, and several processes may share it.
type Directory string

// Path returns the absolute path of the shim with that name.
func (d Directory) Path(shim string) string { return filepath.Join(string(d), shim) }

// Add writes s, durably and at once: who runs the name meanwhile gets what was there
// or what is there now. The same again changes nothing. With replace another shim of
// ours may go; ErrForeign, and nothing is done, if it is not ours. ErrInvalid,
// ErrExists, ErrFull and ErrUnsupported are possible as well.
func (d Directory) Add(ctx context.Context, s Shim, replace bool) error {
	if runtime.GOOS == "windows" {
		return fmt.Errorf("add shim: %w", ErrUnsupported)
	}
	content, err := s.render()
	if err != nil {
		return fmt.Errorf("add shim: %w", err)
	}
	if err := private.Dir(string(d)); err != nil {
		return fmt.Errorf("add shim: %w", err)
	}
	err = d.locked(ctx, func(root *os.Root) error {
		old, err := d.read(s.Name)
		there := err == nil
		switch {
		case there && old == s:
			return nil
		case there && !replace:
			return ErrExists
		case !there && !errors.Is(err, ErrNotFound):
			return err
		}
		if all, err := names(root); err != nil {
			return err
		} else if !there && len(all) >= maxEntries {
			return ErrFull
		}
		return d.write(root, s.Name, content, there)
	})
	if err != nil {
		return fmt.Errorf("add shim %s: %w", s.Name, err)
	}
	return nil
}

// write makes the file under another name, whole, and then gives it its own: which
// takes the place of a shim of ours, or of nothing.
func (d Directory) write(root *os.Root, leaf string, content []byte, replace bool) (err error) {
	if err := root.Remove(newFile); err != nil && !errors.Is(err, fs.ErrNotExist) { // of a process that died
		return err
	}
	f, err := root.OpenFile(newFile, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o700)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil {
		err = errors.Join(f.Chmod(0o700), f.Sync()) // whatever the umask took
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, root.Remove(newFile))
	}
	if replace {
		err = root.Rename(newFile, leaf)
	} else if err = root.Link(newFile, leaf); err == nil { // fails where anything is
		err = root.Remove(newFile)
	}
	if err != nil {
		return errors.Join(err, root.Remove(newFile))
	}
	return atomicfile.SyncDir(string(d))
}

// locked runs f while no other process changes the directory.
func (d Directory) locked(ctx context.Context, f func(root *os.Root) error) (err error) {
	lock, err := filelock.Exclusive(ctx, filepath.Join(string(d), lockFile))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	root, err := os.OpenRoot(string(d))
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // nothing is written through it
	return f(root)
}

// read returns the shim of that name: ErrNotFound, or ErrForeign for anything that is
// not ours, however little of it can be read.
func (d Directory) read(leaf string) (Shim, error) {
	if _, err := os.Lstat(d.Path(leaf)); errors.Is(err, fs.ErrNotExist) {
		return Shim{}, ErrNotFound
	}
	content, err := private.Read(d.Path(leaf), maxFile)
	if err != nil {
		return Shim{}, fmt.Errorf("%w: %w", ErrForeign, err)
	}
	s, ok := parse(leaf, content)
	if !ok {
		return Shim{}, ErrForeign
	}
	return s, nil
}

// names lists the entries, but those that are of the directory itself.
func names(root *os.Root) ([]string, error) {
	f, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	list, err := f.ReadDir(maxEntries + 2) // with those of the directory itself
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	var out []string
	for _, e := range list {
		if e.Name() != lockFile && e.Name() != newFile {
			out = append(out, e.Name())
		}
	}
	slices.Sort(out)
	return out, nil
}

// List returns the shims, by name, and the names of what else is in the directory. No
// directory is no shim.
func (d Directory) List() (ours []Shim, foreign []string, err error) {
	root, err := d.open()
	if root == nil {
		return nil, nil, err
	}
	defer func() { _ = root.Close() }()
	all, err := names(root)
	if err != nil {
		return nil, nil, fmt.Errorf("list shims: %w", err)
	}
	for _, leaf := range all {
		s, err := d.read(leaf)
		switch {
		case err == nil:
			ours = append(ours, s)
		case !errors.Is(err, ErrNotFound): // it went meanwhile
			foreign = append(foreign, leaf)
		}
	}
	return ours, foreign, nil
}

// open returns nil without an error where there is no directory.
func (d Directory) open() (*os.Root, error) {
	err := private.CheckDir(string(d))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // said above
	}
	if err != nil {
		return nil, fmt.Errorf("open shims: %w", err)
	}
	root, err := os.OpenRoot(string(d))
	if err != nil {
		return nil, fmt.Errorf("open shims: %w", err)
	}
	return root, nil
}

// Remove removes the shim of that name: ErrNotFound, ErrInvalid, or ErrForeign for
// what is not ours.
func (d Directory) Remove(ctx context.Context, shim string) error {
	if err := CheckName(shim); err != nil {
		return fmt.Errorf("remove shim: %w", err)
	}
	_, err := d.remove(ctx, func(s Shim) bool { return s.Name == shim }, shim)
	if err != nil {
		return fmt.Errorf("remove shim %s: %w", shim, err)
	}
	return nil
}

// RemoveOf removes the shims of a Connector and returns their names; what is not ours
// stays.
func (d Directory) RemoveOf(ctx context.Context, key name.ConnectorKey) ([]string, error) {
	gone, err := d.remove(ctx, func(s Shim) bool { return s.Connector == key }, "")
	if err != nil {
		return gone, fmt.Errorf("remove shims of %s: %w", key, err)
	}
	return gone, nil
}

// remove removes those that match; only may name the one that is to be looked at, which
// then has to be there.
func (d Directory) remove(ctx context.Context, match func(Shim) bool, only string) (gone []string, err error) {
	root, err := d.open()
	if root == nil {
		if err == nil && only != "" {
			err = ErrNotFound
		}
		return nil, err
	}
	_ = root.Close()
	err = d.locked(ctx, func(root *os.Root) error {
		all := []string{only}
		if only == "" {
			if all, err = names(root); err != nil {
				return err
			}
		}
		for _, leaf := range all {
			s, err := d.read(leaf)
			if err != nil && only != "" {
				return err
			}
			if err != nil || !match(s) {
				continue
			}
			if err := root.Remove(leaf); err != nil {
				return err
			}
			gone = append(gone, leaf)
		}
		return atomicfile.SyncDir(string(d))
	})
	return gone, err
}

// OnPath tells whether the directory is one of those of a PATH.
func (d Directory) OnPath(path string) bool {
	return slices.ContainsFunc(filepath.SplitList(path), func(p string) bool {
		return filepath.IsAbs(p) && filepath.Clean(p) == filepath.Clean(string(d))
	})
}
