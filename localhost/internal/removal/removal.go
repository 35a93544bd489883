package removal

import (
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

const (
	// maxOpen bounds how many directories a removal holds open: one in each level.
	// A CLI can nest them deeper than this process has descriptors.
	maxOpen = 64
	// removeBatch is how many entries of a directory are read at once.
	removeBatch = 1024
)

// Tree deletes what is called leaf in the directory parent, whatever it is;
// nothing is no error. Links are removed and never followed, and directories that
// a program made unreadable are opened first.
func Tree(parent, leaf string) error {
	root, err := os.OpenRoot(parent)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // only a directory handle
	top, err := openForRemoval(root, leaf)
	if top == nil {
		return err
	}
	defer func() { _ = top.Close() }() // only a directory handle
	if err := (&removal{top}).empty(top, "."); err != nil {
		return err
	}
	return root.Remove(leaf)
}

// openForRemoval opens the directory leaf. It is nil if there is nothing more to do
// or if that failed: what is no directory, or an empty one, is removed at once.
func openForRemoval(parent *os.Root, leaf string) (*os.Root, error) {
	err := parent.Remove(leaf)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // nothing to open, nothing wrong
	}
	info, statErr := parent.Lstat(leaf)
	if statErr != nil || !info.IsDir() {
		return nil, err
	}
	if info.Mode().Perm()&0o700 != 0o700 {
		if err := parent.Chmod(leaf, 0o700); err != nil {
			return nil, err
		}
	}
	return parent.OpenRoot(leaf)
}

// removal empties the directory top.
type removal struct{ top *os.Root }

// empty removes everything in dir, which is top or lies at path in it.
func (r *removal) empty(dir *os.Root, path string) error {
	for {
		names, err := someNames(dir)
		if len(names) == 0 || err != nil {
			return err
		}
		for _, n := range names {
			if err := r.remove(dir, path, n); err != nil {
				return err
			}
		}
	}
}

func someNames(dir *os.Root) ([]string, error) {
	f, err := dir.Open(".")
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	names, err := f.Readdirnames(removeBatch)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return names, err
}

// remove removes the entry leaf of dir. What lies too deep is moved to the top
// instead, where its turn comes.
func (r *removal) remove(dir *os.Root, path, leaf string) error {
	sub, err := openForRemoval(dir, leaf)
	if sub == nil {
		return err
	}
	defer func() { _ = sub.Close() }() // only a directory handle
	at := filepath.Join(path, leaf)
	if depth(at) > maxOpen {
		return r.top.Rename(at, rand.Text())
	}
	if err := r.empty(sub, at); err != nil {
		return err
	}
	return dir.Remove(leaf)
}

func depth(path string) (n int) {
	for _, c := range path {
		if c == filepath.Separator {
			n++
		}
	}
	return n
}
