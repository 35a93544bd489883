package chain

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/lendcli/lend/gateway/ledger/folder"
	"github.com/lendcli/lend/gateway/ledger/segment"
)

// Walk calls fn for each record that is kept, in order, and returns the bytes of a
// torn tail.
func Walk(dir string, fn func(segment.Frame) error) (torn int64, err error) {
	firsts, err := folder.Segments(dir)
	if err != nil {
		return 0, err
	}
	if len(firsts) == 0 {
		return 0, fmt.Errorf("no segment in %s: %w", dir, os.ErrNotExist)
	}
	next := firsts[0]
	for i, first := range firsts {
		if first != next {
			return 0, &segment.DamageError{Index: next, What: fmt.Sprintf("the next segment begins at record %d", first)}
		}
		if torn, next, err = walkSegment(dir, first, fn); err != nil {
			return 0, err
		}
		if torn > 0 && i < len(firsts)-1 {
			return 0, &segment.DamageError{Index: next, What: "torn, in a segment that was finished"}
		}
	}
	return torn, nil
}

// walkSegment returns the bytes of a torn tail and the index after the last record.
func walkSegment(dir string, first uint64, fn func(segment.Frame) error) (torn int64, next uint64, err error) {
	f, err := folder.Open(dir, first, os.O_RDONLY)
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = f.Close() }()
	size, err := f.Size()
	if err != nil {
		return 0, 0, err
	}
	s := segment.Scan(f, size, first)
	for next = first; ; next++ {
		switch fr, err := s.Next(); {
		case errors.Is(err, io.EOF):
			return 0, next, nil
		case errors.Is(err, segment.ErrTorn):
			return size - s.Offset(), next, nil
		case err != nil:
			return 0, next, err
		default:
			if err := fn(fr); err != nil {
				return 0, next, err
			}
		}
	}
}
