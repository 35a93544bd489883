package chain

import (
	"crypto/sha256"
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
	// Kept is the size of the newest checkpoint from outside that fits: what comes
	// later, who can write the directory could have made up.
	Kept uint64

	Starts, Ends, NotStarted, Unknown, Refusals, Events uint64
	// Running counts starts without an end; TornTail the bytes after the last
	// whole record.
	Running  int
	TornTail int64
}

// Kept is what somebody kept outside of the ledger.
type Kept struct {
	Name string // for people
	// Note is a signed checkpoint; nil if there is only a key.
	Note []byte
	// Key is the key that the ledger is known to sign with, as package note writes
	// it; "" means that it is not known.
	Key string
}

// ownPoint is the name of the checkpoint in the directory.
const ownPoint = "the checkpoint of the directory"

// Verify checks a ledger, or a copy of its directory. The error is segment.ErrCorrupt
// if anything differs; what was found until then is in the Report.
// spec: LEDGER-26, LEDGER-27, LEDGER-29.
func Verify(dir string, kept []Kept) (Report, error) {
	all, err := gather(dir, kept)
	if err != nil {
		return Report{}, err
	}
	if firsts, err := folder.Segments(dir); err == nil && len(firsts) == 0 {
		return Report{}, &segment.DamageError{What: "there is no record"}
	}
	a := &auditor{dir: dir, open: make(map[uint64]bool), seen: make(map[folder.Hash]bool), kept: all}
	_, a.report.TornTail, err = WalkFrom(dir, Cursor{}, a.add)
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
			return a.report, &segment.DamageError{Offset: a.end, Index: a.tree.Size(), What: a.missing(p)}
		}
	}
	return a.report, nil
}

// missing says that there are fewer records than a checkpoint covers: it cannot tell
// which are missing, if others were moved up.
func (a *auditor) missing(p point) string {
	what := fmt.Sprintf("%s covers %d records; the rest is gone", p.name, p.Size)
	if from := max(a.report.Kept, a.report.From); from < a.tree.Size() {
		what += fmt.Sprintf(", and it says nothing of the records %d to %d", from, a.tree.Size()-1)
	}
	return what
}

// gather adds the checkpoint of the directory to those that were kept.
func gather(dir string, kept []Kept) ([]Kept, error) {
	b, err := folder.ReadCheckpoint(dir)
	if errors.Is(err, segment.ErrCorrupt) { // a copy may be without
		return kept, nil
	}
	return append(slices.Clone(kept), Kept{Name: ownPoint, Note: b}), err
}

// point is a checkpoint that was opened.
type point struct {
	segment.Checkpoint
	name    string
	outside bool
}

// auditor follows the records of a walk.
type auditor struct {
	dir    string
	seg    record.Segment // the newest one so far
	tree   segment.Tree
	report Report
	kept   []Kept
	points []point
	open   map[uint64]bool
	seen   map[folder.Hash]bool // of the keys of starts
	end    int64                // offset behind the last record
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
		k := keyHash(en.Start.Key)
		if a.seen[k] {
			return bad("a second start of one operation")
		}
		a.seen[k], a.open[f.Index] = true, true
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
		var damage *segment.DamageError
		if err := a.begin(f); errors.As(err, &damage) {
			return err
		} else if err != nil {
			return bad(err.Error())
		}
	}
	a.tree.Add(f.Payload)
	a.end = f.Offset + segment.FrameSize(len(f.Payload))
	return a.compare()
}

// keyHash is short, so that the keys of a million starts can be held.
func keyHash(k record.Key) folder.Hash {
	sum := sha256.Sum256([]byte(k.Issuer.String() + " " + k.Invocation.String() + " " + k.Holder.String() + " " + k.Operation.String()))
	return folder.Hash(sum[:16])
}

// compare looks for checkpoints of the records so far. What is before the newest one
// that fits is right, so the fault is behind it; for one from outside only others from
// outside count.
func (a *auditor) compare() error {
	r, n := &a.report, a.tree.Size()
	for _, p := range a.points {
		switch {
		case p.Size != n:
		case p.Root != a.tree.Root():
			from := max(r.Kept, r.From)
			if !p.outside {
				from = max(r.Covered, from)
			}
			return &segment.DamageError{Index: from, What: changed(p.name, n, from)}
		case p.outside:
			r.Covered, r.Kept = n, n
		default:
			r.Covered = n
		}
	}
	return nil
}

// changed says which records may be the wrong ones.
func changed(name string, size, from uint64) string {
	what := fmt.Sprintf("%s, of %d records, does not fit: ", name, size)
	switch {
	case from == size:
		return what + "what was pruned was changed"
	case from == size-1:
		return what + fmt.Sprintf("record %d was changed", from)
	}
	return what + fmt.Sprintf("one of the records %d to %d was changed", from, size-1)
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
	} else if seg.ID != a.report.ID || seg.VerifierKey != a.report.VerifierKey {
		return errors.New("the segment is of another ledger")
	} else if a.tree.Root() != before.Root() {
		from := max(a.seg.First, a.report.Covered)
		return &segment.DamageError{Index: from, What: changed("the checkpoint in the next segment", seg.First, from)}
	}
	seg.Edge, seg.Point = nil, nil
	a.seg = seg
	return nil
}

// beginFirst reads the checkpoints with the key that the first segment names.
func (a *auditor) beginFirst(seg *record.Segment, verifier note.Verifier) error {
	a.report.ID, a.report.Birth, a.report.VerifierKey, a.report.From = seg.ID, seg.Birth, seg.VerifierKey, seg.First
	for _, k := range a.kept {
		if k.Key != "" && k.Key != seg.VerifierKey {
			return fmt.Errorf("the ledger has another key than %s: it is not the same ledger, or was made again", k.Name)
		}
		if k.Note == nil {
			continue
		}
		p, err := segment.OpenCheckpoint(k.Note, verifier)
		if err != nil {
			return fmt.Errorf("%s was not signed by this ledger's key: %w", k.Name, err)
		}
		if p.ID != seg.ID {
			return fmt.Errorf("%s is of another ledger", k.Name)
		}
		if p.Size < seg.First {
			a.report.Older++
		}
		a.points = append(a.points, point{p, k.Name, k.Name != ownPoint})
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
