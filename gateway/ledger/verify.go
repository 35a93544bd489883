package ledger

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/lendcli/lend/gateway/ledger/folder"
	"github.com/lendcli/lend/gateway/ledger/record"
	"github.com/lendcli/lend/gateway/ledger/segment"
)

// Walk calls fn for each record of the ledger in dir, in order, without taking the
// directory: it may be in use, or a copy without keys. It ends at a torn tail, or at
// fn's first error, which it returns. The error is ErrCorrupt at the first record
// that is not as it was written.
func Walk(dir string, fn func(Entry) error) error {
	_, err := walk(dir, func(f segment.Frame) error {
		en, err := record.Decode(f.Index, f.Payload)
		if err != nil {
			return &segment.DamageError{Offset: f.Offset, Index: f.Index, What: err.Error()}
		}
		return fn(en)
	})
	if err != nil {
		return fmt.Errorf("read ledger: %w", err)
	}
	return nil
}

// Walk calls fn for each record that is in the file by now, as the function Walk
// does.
func (l *Ledger) Walk(fn func(Entry) error) error { return Walk(l.dir, fn) }

// walk returns the bytes of a torn tail.
func walk(dir string, fn func(segment.Frame) error) (torn int64, err error) {
	f, err := folder.Open(dir, os.O_RDONLY)
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }()
	size, err := f.Size()
	if err != nil {
		return 0, err
	}
	s := segment.Scan(f, size)
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
		}
	}
}

// Report is what Verify found. The counts are of records.
type Report struct {
	ID    [16]byte
	Birth time.Time
	// Records and Root are the size and the root of the Merkle tree.
	Records uint64
	Root    [32]byte
	// VerifierKey is what the ledger says its checkpoints are signed with: compare
	// it with what you noted, since who rewrites a ledger can name a key as well.
	VerifierKey string
	// Covered is the size of the newest checkpoint that fits; later records are
	// covered by none.
	Covered uint64

	Starts, Ends, NotStarted, Unknown, Refusals, Events uint64
	// Running counts starts without an end; TornTail the bytes after the last
	// whole record.
	Running  int
	TornTail int64
}

// Verify checks a ledger, or a copy of its directory, offline: each record, the
// order of starts and ends, the checkpoint in the directory if there is one, and
// those that were kept elsewhere. The error is ErrCorrupt if anything differs; it
// says what, and from which record on. spec: LEDGER-26, LEDGER-27.
func Verify(dir string, kept ...[]byte) (Report, error) {
	r, err := verify(dir, kept)
	if err != nil {
		return r, fmt.Errorf("verify ledger: %w", err)
	}
	return r, nil
}

func verify(dir string, kept [][]byte) (Report, error) {
	points, err := gather(dir, kept)
	if err != nil {
		return Report{}, err
	}
	a := &auditor{open: make(map[uint64]bool), seen: make(map[Key]bool), kept: points}
	a.report.TornTail, err = walk(dir, a.add)
	a.report.Records, a.report.Root, a.report.Running = a.tree.Size(), a.tree.Root(), len(a.open)
	if err != nil {
		return a.report, err
	}
	if a.tree.Size() == 0 {
		return a.report, &segment.DamageError{What: "there is no record"}
	}
	for _, p := range a.points {
		if p.Size > a.tree.Size() {
			return a.report, &segment.DamageError{Index: a.tree.Size(), What: fmt.Sprintf("a checkpoint covers %d records; the rest is gone", p.Size)}
		}
	}
	return a.report, nil
}

// gather adds the checkpoint of the directory to those that were kept.
func gather(dir string, kept [][]byte) ([][]byte, error) {
	b, err := folder.ReadCheckpoint(dir)
	if errors.Is(err, ErrCorrupt) { // a copy may be without
		return kept, nil
	}
	return append(slices.Clone(kept), b), err
}

// auditor follows the records of a walk.
type auditor struct {
	tree   segment.Tree
	report Report
	kept   [][]byte
	points []segment.Checkpoint
	open   map[uint64]bool
	seen   map[Key]bool
}

func (a *auditor) add(f segment.Frame) error {
	bad := func(what string) error { return &segment.DamageError{Offset: f.Offset, Index: f.Index, What: what} }
	en, err := record.Decode(f.Index, f.Payload)
	if err != nil {
		return bad(err.Error())
	}
	switch r := &a.report; {
	case (f.Index == 0) != (f.Payload[0] == record.KindSegment):
		return bad("the record of a segment is not where it belongs")
	case en.Start != nil:
		if a.seen[en.Start.Key] {
			return bad("a second start of one operation")
		}
		a.seen[en.Start.Key], a.open[f.Index] = true, true
		r.Starts++
	case en.End != nil:
		if !a.open[en.Of] {
			return bad("an end without a start")
		}
		delete(a.open, en.Of)
		*map[State]*uint64{StateEnded: &r.Ends, StateNotStarted: &r.NotStarted, StateUnknown: &r.Unknown}[en.End.State]++
	case en.Refusal != nil:
		r.Refusals++
	case en.Event != nil:
		r.Events++
	default:
		if err := a.begin(f); err != nil {
			return bad(err.Error())
		}
	}
	a.tree.Add(f.Payload)
	for _, p := range a.points {
		if p.Size == a.tree.Size() && p.Root != a.tree.Root() {
			return bad(fmt.Sprintf("a checkpoint of %d records does not fit: one of them was changed", p.Size))
		}
		if p.Size == a.tree.Size() {
			a.report.Covered = p.Size
		}
	}
	return nil
}

// begin reads the first record and, with its key, the checkpoints.
func (a *auditor) begin(f segment.Frame) error {
	seg, err := record.DecodeSegment(f.Payload)
	if err != nil {
		return err
	}
	if seg.First != f.Index {
		return errors.New("the segment begins elsewhere")
	}
	verifier, err := note.NewVerifier(seg.VerifierKey)
	if err != nil {
		return err
	}
	a.report.ID, a.report.Birth, a.report.VerifierKey = seg.ID, seg.Birth, seg.VerifierKey
	for i, b := range a.kept {
		p, err := segment.OpenCheckpoint(b, verifier)
		if err != nil {
			return fmt.Errorf("checkpoint %d was not signed by this ledger's key: %w", i, err)
		}
		if p.ID != seg.ID {
			return fmt.Errorf("checkpoint %d is of another ledger", i)
		}
		a.points = append(a.points, p)
	}
	return nil
}
