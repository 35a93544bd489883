package chain

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/lendcli/lend/gateway/ledger/folder"
	"github.com/lendcli/lend/gateway/ledger/record"
	"github.com/lendcli/lend/gateway/ledger/segment"
)

// Report is what Verify found. The counts are of records.
type Report struct {
	ID    [16]byte
	Birth time.Time
	// From is the index of the first record that is kept, and was checked; those
	// before it were pruned. Segments counts files.
	From     uint64
	Segments int
	// Closed counts the invocations whose records were pruned.
	Closed uint64
	// Older counts the checkpoints that cover pruned records only: there is nothing
	// left to check them by.
	Older int
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

// Verify checks a ledger, or a copy of its directory. The error is segment.ErrCorrupt
// if anything differs; what was found until then is in the Report.
// spec: LEDGER-26, LEDGER-27, LEDGER-29.
func Verify(dir string, kept [][]byte) (Report, error) {
	points, err := gather(dir, kept)
	if err != nil {
		return Report{}, err
	}
	a := &auditor{dir: dir, open: make(map[uint64]bool), seen: make(map[record.Key]bool), kept: points}
	a.report.TornTail, err = Walk(dir, a.add)
	a.report.Records, a.report.Root, a.report.Running = a.tree.Size(), a.tree.Root(), len(a.open)
	if err != nil {
		return a.report, err
	}
	if a.tree.Size() == 0 {
		return a.report, &segment.DamageError{What: "there is no record"}
	}
	if a.seg.Kept < a.report.From { // more than it says is there while a pruning is not over
		return a.report, &segment.DamageError{Index: a.seg.Kept, What: "its segment is gone"}
	}
	if err := a.closed(); err != nil {
		return a.report, err
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
	if errors.Is(err, segment.ErrCorrupt) { // a copy may be without
		return kept, nil
	}
	return append(slices.Clone(kept), b), err
}

// auditor follows the records of a walk.
type auditor struct {
	dir    string
	seg    record.Segment // the newest one so far
	tree   segment.Tree
	report Report
	kept   [][]byte
	points []segment.Checkpoint
	open   map[uint64]bool
	seen   map[record.Key]bool
}

func (a *auditor) add(f segment.Frame) error {
	bad := func(what string) error { return &segment.DamageError{Offset: f.Offset, Index: f.Index, What: what} }
	en, err := record.Decode(f.Index, f.Payload)
	if err != nil {
		return bad(err.Error())
	}
	switch r := &a.report; {
	case (f.Offset == 0) != record.IsSegment(f.Payload):
		return bad("the record of a segment is not where it belongs")
	case en.Start != nil:
		if a.seen[en.Start.Key] {
			return bad("a second start of one operation")
		}
		a.seen[en.Start.Key], a.open[f.Index] = true, true
		r.Starts++
	case en.End != nil:
		if !a.open[en.Of] && en.Of >= r.From {
			return bad("an end without a start")
		}
		delete(a.open, en.Of)
		*map[record.State]*uint64{record.StateEnded: &r.Ends, record.StateNotStarted: &r.NotStarted, record.StateUnknown: &r.Unknown}[en.End.State]++
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
	if err := a.compare(); err != nil {
		return bad(err.Error())
	}
	return nil
}

// compare looks for checkpoints of the records so far.
func (a *auditor) compare() error {
	for _, p := range a.points {
		if p.Size == a.tree.Size() && p.Root != a.tree.Root() {
			return fmt.Errorf("a checkpoint of %d records does not fit: one of them was changed", p.Size)
		}
		if p.Size == a.tree.Size() {
			a.report.Covered = p.Size
		}
	}
	return nil
}

// begin reads the first record of a segment.
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
	if err := Fits(&seg, verifier); err != nil {
		return err
	}
	before, _ := segment.Resume(seg.First, seg.Edge)
	a.report.Segments++
	if a.report.Segments == 1 {
		a.tree = before
		if err := a.beginFirst(&seg, verifier); err != nil {
			return err
		}
	} else if seg.ID != a.report.ID || seg.VerifierKey != a.report.VerifierKey || a.tree.Root() != before.Root() {
		return errors.New("the segment does not follow the one before")
	}
	seg.Edge, seg.Point = nil, nil
	a.seg = seg
	return nil
}

// beginFirst reads the checkpoints with the key that the first segment names.
func (a *auditor) beginFirst(seg *record.Segment, verifier note.Verifier) error {
	a.report.ID, a.report.Birth, a.report.VerifierKey, a.report.From = seg.ID, seg.Birth, seg.VerifierKey, seg.First
	for i, b := range a.kept {
		p, err := segment.OpenCheckpoint(b, verifier)
		if err != nil {
			return fmt.Errorf("checkpoint %d was not signed by this ledger's key: %w", i, err)
		}
		if p.ID != seg.ID {
			return fmt.Errorf("checkpoint %d is of another ledger", i)
		}
		if p.Size < seg.First {
			a.report.Older++
		}
		a.points = append(a.points, p)
	}
	if seg.First == 0 {
		return nil
	}
	return a.compare()
}

// closed checks the closed invocations against what the newest segment says.
func (a *auditor) closed() error {
	if _, _, err := ReadClosed(a.dir, a.seg.Closed); err != nil {
		return err
	}
	a.report.Closed = a.seg.Closed.Count
	return nil
}
