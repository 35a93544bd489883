package chain

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/lendcli/lend/gateway/ledger/folder"
	"github.com/lendcli/lend/gateway/ledger/segment"
)

// Cursor is a place between two records. The zero value is before the oldest one
// that is kept.
type Cursor struct {
	First  uint64 // the segment, by the index of its first record
	Offset int64  // in its file
	Next   uint64 // index of the record that begins there
}

// Begin is the place before the first record of a segment.
func Begin(first uint64) Cursor { return Cursor{First: first, Next: first} }

// Walk calls fn for each record that is kept, in order, and returns the bytes of a
// torn tail.
func Walk(dir string, fn func(segment.Frame) error) (torn int64, err error) {
	_, torn, err = WalkFrom(dir, Cursor{}, fn)
	return torn, err
}

// WalkFrom is Walk from a place on. It returns the place behind the last record for
// which fn returned nil: where to go on when there is more. The error is
// os.ErrNotExist if the segment of the place is not there (any more).
func WalkFrom(dir string, at Cursor, fn func(segment.Frame) error) (end Cursor, torn int64, err error) {
	firsts, err := folder.Segments(dir)
	if err != nil {
		return at, 0, err
	}
	if len(firsts) == 0 {
		return at, 0, fmt.Errorf("no segment in %s: %w", dir, os.ErrNotExist)
	}
	if at == (Cursor{}) {
		at = Begin(firsts[0])
	}
	i, ok := slices.BinarySearch(firsts, at.First)
	if !ok {
		return at, 0, fmt.Errorf("segment of record %d in %s: %w", at.First, dir, os.ErrNotExist)
	}
	for {
		if torn, err = walkSegment(dir, &at, fn); err != nil {
			return at, 0, err
		}
		if i++; i == len(firsts) {
			return at, torn, nil
		}
		if torn > 0 {
			return at, 0, &segment.DamageError{Offset: at.Offset, Index: at.Next, What: "torn, in a segment that was finished"}
		}
		if firsts[i] != at.Next {
			return at, 0, &segment.DamageError{Offset: at.Offset, Index: at.Next, What: fmt.Sprintf("the next segment begins at record %d", firsts[i])}
		}
		at = Begin(firsts[i])
	}
}

// walkSegment moves at on to the end of its segment, and returns the bytes of a
// torn tail.
func walkSegment(dir string, at *Cursor, fn func(segment.Frame) error) (torn int64, err error) {
	f, err := folder.Open(dir, at.First, os.O_RDONLY)
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }()
	size, err := f.Size()
	if err != nil {
		return 0, err
	}
	if size < at.Offset {
		return 0, &segment.DamageError{Offset: size, Index: at.Next, What: "the file is shorter than it was"}
	}
	s := segment.ScanFrom(f, size, at.Offset, at.Next)
	for {
		switch fr, err := s.Next(); {
		case errors.Is(err, io.EOF):
			return 0, nil
		case errors.Is(err, segment.ErrTorn):
			return size - s.Offset(), nil
		case err != nil:
			return 0, err
		default:
			if err := fn(fr); err != nil {
				return 0, err
			}
			at.Offset, at.Next = s.Offset(), fr.Index+1
		}
	}
}
