package ownerfile

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// ErrChanged says that a file is not the one any more that was read before.
var ErrChanged = errors.New("the file has changed meanwhile")

// ErrUnsynced says that the file is the new one, but that a power cut may yet bring the
// old one back.
var ErrUnsynced = errors.New("the file is written, but not certain to outlast a power cut")

// Rewrite puts new content in the place of what Read has returned as old, and keeps the
// file's mode and group: readers see the old content or the new one. It is durable when
// Rewrite returns, and the file is as it was if it fails, but with ErrUnsynced. Rewrites of files of one
// directory wait for each other; an editor that writes between the last look and the
// replacement, some microseconds later, is not seen. Errors: those of Read, ErrChanged,
// ErrUnsynced, and *UnsafeError for a file that has other names (hard links), which would keep the
// old content.
func Rewrite(path string, a Access, old, data []byte) error {
	return rewrite(path, a, old, data, syncDir)
}

func rewrite(path string, a Access, old, data []byte, sync func(dir string) error) (err error) {
	dir := filepath.Dir(path)
	release, err := lockDir(dir)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer func() { _ = release() }() // closing it unlocks, too, and what is done is done
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".new-*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	err = errors.Join(makePrivate(f), write(f, data), keepAccess(path, f, info), f.Sync(), f.Close())
	if err == nil {
		err = unchanged(path, a, old)
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, errors.Join(err, os.Remove(f.Name())))
	}
	if err := sync(dir); err != nil {
		return fmt.Errorf("write %s: %w: %w", path, ErrUnsynced, err)
	}
	return nil
}

// unchanged looks once more whether the file is what was read.
func unchanged(path string, a Access, old []byte) error {
	info, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) || err == nil && info.Mode().IsRegular() && info.Size() != int64(len(old)) {
		return ErrChanged
	}
	now, err := Read(path, a, int64(len(old)))
	if err != nil {
		return err
	}
	if !bytes.Equal(now, old) {
		return ErrChanged
	}
	return nil
}
