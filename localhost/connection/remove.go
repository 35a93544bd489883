package connection

import (
	"errors"
	"io/fs"
	"os"
)

// removeTree deletes what is called leaf in the directory parent, whatever it is;
// nothing is no error. Links are removed and never followed, and directories that
// a program made unreadable are opened first.
func removeTree(parent, leaf string) error {
	root, err := os.OpenRoot(parent)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // only a directory handle
	if err := root.RemoveAll(leaf); err == nil || !errors.Is(err, fs.ErrPermission) {
		return err
	}
	if err := unlock(root, leaf); err != nil {
		return err
	}
	return root.RemoveAll(leaf)
}

// unlock makes every directory of a tree removable.
func unlock(parent *os.Root, leaf string) error {
	info, err := parent.Lstat(leaf)
	if err != nil || !info.IsDir() {
		return err
	}
	if err := parent.Chmod(leaf, 0o700); err != nil {
		return err
	}
	root, err := parent.OpenRoot(leaf)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // only a directory handle
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := unlock(root, e.Name()); err != nil {
				return err
			}
		}
	}
	return nil
}
