package folder

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lendcli/lend/gateway/ledger/segment"
)

const digits = 20 // of an index in a name

func segmentName(first uint64) string { return fmt.Sprintf("%0*d", digits, first) + segmentSuffix }

func snapshotName(first uint64) string { return fmt.Sprintf("%0*d", digits, first) + snapshotSuffix }

// firstOf reads the name of a segment.
func firstOf(base string) (uint64, bool) {
	number, ok := strings.CutSuffix(base, segmentSuffix)
	first, err := strconv.ParseUint(number, 10, 63)
	return first, ok && err == nil && len(number) == digits
}

// Segments lists the segments in dir by the index of their first record, oldest
// first.
func Segments(dir string) ([]uint64, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var out []uint64
	for _, e := range entries {
		if first, ok := firstOf(e.Name()); ok {
			out = append(out, first)
		}
	}
	return out, nil // ReadDir sorts, and the names have one length
}

// AddSegment makes a segment of one frame: durable and whole, or not at all. With
// an error, there tells whether it may be there nevertheless.
func (d Folder) AddSegment(first uint64, frame []byte) (there bool, err error) {
	if err = d.writeFile(segmentName(first), frame); err == nil {
		return true, nil
	}
	_, gone := os.Lstat(filepath.Join(d.Path, segmentName(first)))
	return !errors.Is(gone, os.ErrNotExist), err
}

// DropSegment takes back a segment that nothing was built on.
func (d Folder) DropSegment(first uint64) error {
	if err := d.remove(segmentName(first)); err != nil {
		return err
	}
	return d.syncDir()
}

// RemoveBefore removes the segments that begin before a record, oldest first, and
// their snapshots.
func (d Folder) RemoveBefore(kept uint64) error {
	firsts, err := Segments(d.Path)
	if err != nil {
		return err
	}
	for _, first := range firsts {
		if first >= kept {
			break
		}
		if err := d.remove(snapshotName(first)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		if err := d.remove(segmentName(first)); err != nil {
			return err
		}
	}
	return d.syncDir()
}

// maxSnapshot bounds the snapshot of one segment, in bytes.
const maxSnapshot = 1 << 30

// WriteSnapshot replaces the snapshot of a segment. It is a cache: it is not made
// durable, and who reads it checks it.
func (d Folder) WriteSnapshot(first uint64, data []byte) error {
	return d.place(snapshotName(first), data, false)
}

// ReadSnapshot returns the snapshot of a segment, as it lies there.
func ReadSnapshot(dir string, first uint64) ([]byte, error) {
	path := filepath.Join(dir, snapshotName(first))
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxSnapshot {
		return nil, fmt.Errorf("snapshot of %d bytes, mode %s", info.Size(), info.Mode())
	}
	return os.ReadFile(path)
}

// AppendClosed writes frames at an offset of the file of closed invocations, makes
// them durable, and cuts off what is behind them.
func (d Folder) AppendClosed(off int64, frames []byte) error {
	if err := d.step("create", closedName); err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(d.Path, closedName), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	if err = d.step("write", closedName); err == nil {
		_, err = f.WriteAt(frames, off)
	}
	if err == nil {
		if err = d.step("cut", closedName); err == nil {
			err = f.Truncate(off + int64(len(frames)))
		}
	}
	if err == nil {
		if err = d.step("sync", closedName); err == nil {
			err = f.Sync()
		}
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return d.syncDir()
}

// ReadClosed returns the first size bytes of the file of closed invocations;
// segment.ErrCorrupt if there are fewer.
func ReadClosed(dir string, size int64) ([]byte, error) {
	if size == 0 {
		return nil, nil
	}
	bad := &segment.DamageError{What: "the file of closed invocations is too short"}
	path := filepath.Join(dir, closedName)
	if err := regular(path); err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, bad
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	if info, err := f.Stat(); err != nil || info.Size() < size {
		return nil, cmp.Or[error](err, bad)
	}
	b := make([]byte, size)
	if _, err := io.ReadFull(f, b); err != nil {
		return nil, fmt.Errorf("read closed invocations: %w", err)
	}
	return b, nil
}

// SetAside renames every file of a ledger, so that the directory is empty for
// Create and nothing is lost. The keys go last: until then, what is left is a ledger
// that is lost or corrupt. It returns the new names.
func (d Folder) SetAside(now time.Time) ([]string, error) {
	entries, err := os.ReadDir(d.Path)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		n := e.Name()
		if n != lockName && n != reserveName && !strings.HasSuffix(n, asideSuffix) && !strings.HasSuffix(n, newSuffix) {
			names = append(names, n)
		}
	}
	last := func(n string) int { return slices.Index([]string{checkpointName, signerName, macName}, n) }
	slices.SortStableFunc(names, func(a, b string) int { return last(a) - last(b) })
	stamp := now.UTC().Format("20060102T150405.000000000")
	for i, n := range names {
		names[i] = n + "." + stamp + asideSuffix
		if err := d.rename(n, names[i]); err != nil {
			return names[:i], err
		}
	}
	return names, d.syncDir()
}

// Aside lists what SetAside has renamed.
func Aside(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), asideSuffix) {
			out = append(out, e.Name())
		}
	}
	return out, nil
}
