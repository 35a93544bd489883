package chain

import (
	"errors"
	"io"
	"os"

	"golang.org/x/mod/sumdb/note"

	"github.com/lendcli/lend/gateway/ledger/folder"
	"github.com/lendcli/lend/gateway/ledger/record"
	"github.com/lendcli/lend/gateway/ledger/segment"
)

// Head is a segment as its first record says.
type Head struct {
	Segment record.Segment
	Size    int64 // of the file
}

// ReadHead reads the first record of a segment.
func ReadHead(dir string, first uint64) (Head, error) {
	f, err := folder.Open(dir, first, os.O_RDONLY)
	if err != nil {
		return Head{}, err
	}
	defer func() { _ = f.Close() }()
	size, err := f.Size()
	if err != nil {
		return Head{}, err
	}
	fr, err := segment.Scan(f, size, first).Next()
	if errors.Is(err, io.EOF) || errors.Is(err, segment.ErrTorn) {
		return Head{}, &segment.DamageError{Index: first, What: "the first record of a segment is not whole"}
	}
	if err != nil {
		return Head{}, err
	}
	seg, err := record.DecodeSegment(fr.Payload)
	if err == nil && seg.First != first {
		err = errors.New("the segment begins elsewhere")
	}
	if err != nil {
		return Head{}, &segment.DamageError{Index: first, What: err.Error()}
	}
	seg.Edge, seg.Point = append([]byte(nil), seg.Edge...), append([]byte(nil), seg.Point...)
	return Head{seg, size}, nil
}

// Fits checks that the checkpoint in the first record of a segment is of exactly
// the records before it. spec: LEDGER-29.
func Fits(seg *record.Segment, verifier note.Verifier) error {
	if seg.First == 0 {
		return nil
	}
	tree, ok := segment.Resume(seg.First, seg.Edge)
	if !ok {
		return errors.New("the tree before the segment is malformed")
	}
	p, err := segment.OpenCheckpoint(seg.Point, verifier)
	if err != nil {
		return err
	}
	if p.ID != seg.ID || p.Size != seg.First || p.Root != tree.Root() {
		return errors.New("the checkpoint in the segment is not of the records before it")
	}
	return nil
}
