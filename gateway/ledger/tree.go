package ledger

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// tree is the right edge of the Merkle tree (RFC 6962) over all records: one hash
// for each bit that is set in size, the largest subtree first. It is enough to add
// leaves and to know the root.
type tree struct {
	size uint64
	edge []tlog.Hash
}

func (t *tree) add(record []byte) {
	h := tlog.RecordHash(record)
	for n := t.size; n&1 == 1; n >>= 1 {
		h = tlog.NodeHash(t.edge[len(t.edge)-1], h)
		t.edge = t.edge[:len(t.edge)-1]
	}
	t.edge = append(t.edge, h)
	t.size++
}

func (t *tree) root() tlog.Hash {
	if t.size == 0 {
		h, _ := tlog.TreeHash(0, nil)
		return h
	}
	h := t.edge[len(t.edge)-1]
	for i := len(t.edge) - 2; i >= 0; i-- {
		h = tlog.NodeHash(t.edge[i], h)
	}
	return h
}

func (t *tree) clone() tree {
	return tree{size: t.size, edge: append([]tlog.Hash(nil), t.edge...)}
}

// originPrefix and the ledger's ID are the origin line of its checkpoints and the
// name of their key. spec: LEDGER-9.
const originPrefix = "lend/ledger/"

func origin(id [16]byte) string { return originPrefix + hex.EncodeToString(id[:]) }

// signCheckpoint writes a checkpoint in C2SP form: origin, size, root; signed as
// a note.
func signCheckpoint(id [16]byte, t *tree, signer note.Signer) ([]byte, error) {
	root := t.root()
	text := fmt.Sprintf("%s\n%d\n%s\n", origin(id), t.size, base64.StdEncoding.EncodeToString(root[:]))
	signed, err := note.Sign(&note.Note{Text: text}, signer)
	if err != nil {
		return nil, fmt.Errorf("sign checkpoint: %w", err)
	}
	return signed, nil
}

type checkpoint struct {
	id   [16]byte
	size uint64
	root tlog.Hash
}

var errCheckpoint = errors.New("not a checkpoint of this form")

const maxCheckpoint = 4 << 10

// openCheckpoint checks the signature and reads what was signed, strictly.
func openCheckpoint(signed []byte, verifier note.Verifier) (checkpoint, error) {
	if len(signed) > maxCheckpoint {
		return checkpoint{}, errCheckpoint
	}
	n, err := note.Open(signed, note.VerifierList(verifier))
	if err != nil {
		return checkpoint{}, fmt.Errorf("open checkpoint: %w", err)
	}
	lines := strings.Split(n.Text, "\n")
	if len(lines) != 4 || lines[3] != "" {
		return checkpoint{}, errCheckpoint
	}
	var c checkpoint
	id, ok := strings.CutPrefix(lines[0], originPrefix)
	raw, err := hex.DecodeString(id)
	if !ok || err != nil || len(raw) != len(c.id) {
		return checkpoint{}, errCheckpoint
	}
	copy(c.id[:], raw)
	if c.size, err = strconv.ParseUint(lines[1], 10, 63); err != nil || strconv.FormatUint(c.size, 10) != lines[1] {
		return checkpoint{}, errCheckpoint
	}
	root, err := base64.StdEncoding.Strict().DecodeString(lines[2])
	if err != nil || len(root) != len(c.root) || origin(c.id) != lines[0] {
		return checkpoint{}, errCheckpoint
	}
	copy(c.root[:], root)
	return c, nil
}

// Walk calls fn for each record of the ledger in dir, in order, without taking the
// directory: it may be in use, or a copy without keys. It ends at a torn tail, or at
// fn's first error, which it returns. The error is ErrCorrupt at the first record
// that is not as it was written.
func Walk(dir string, fn func(Entry) error) error {
	_, err := walk(dir, func(f frame) error {
		en, err := decodeEntry(f.index, f.payload)
		if err != nil {
			return &damage{offset: f.offset, index: f.index, what: err.Error()}
		}
		return fn(en)
	})
	if err != nil {
		return fmt.Errorf("read ledger: %w", err)
	}
	return nil
}

// walk returns the bytes of a torn tail.
func walk(dir string, fn func(frame) error) (torn int64, err error) {
	f, err := openOSFile(filepath.Join(dir, segmentName), os.O_RDONLY)
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }()
	size, err := f.Size()
	if err != nil {
		return 0, err
	}
	s := &scanner{r: f, size: size}
	for {
		switch fr, err := s.next(); {
		case errors.Is(err, io.EOF):
			return 0, nil
		case errors.Is(err, errTorn):
			return size - s.off, nil
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
	a := &auditor{keys: keys{mac: make([]byte, macSize)}, open: make(map[uint64]bool), seen: make(map[hash]bool), kept: points}
	a.report.TornTail, err = walk(dir, a.add)
	a.report.Records, a.report.Root, a.report.Running = a.tree.size, a.tree.root(), len(a.open)
	if err != nil {
		return a.report, err
	}
	if a.tree.size == 0 {
		return a.report, &damage{what: "there is no record"}
	}
	for _, p := range a.points {
		if p.size > a.tree.size {
			return a.report, &damage{index: a.tree.size, what: fmt.Sprintf("a checkpoint covers %d records; the rest is gone", p.size)}
		}
	}
	return a.report, nil
}

// gather adds the checkpoint of the directory to those that were kept.
func gather(dir string, kept [][]byte) ([][]byte, error) {
	b, err := readSmall(dir, checkpointName)
	if errors.Is(err, ErrCorrupt) { // a copy may be without
		return kept, nil
	}
	return append(slices.Clone(kept), b), err
}

// auditor follows the records of a walk.
type auditor struct {
	keys   keys // not the ledger's: a copy has none
	tree   tree
	report Report
	kept   [][]byte
	points []checkpoint
	open   map[uint64]bool
	seen   map[hash]bool
}

func (a *auditor) add(f frame) error {
	bad := func(what string) error { return &damage{offset: f.offset, index: f.index, what: what} }
	en, err := decodeEntry(f.index, f.payload)
	if err != nil {
		return bad(err.Error())
	}
	switch r := &a.report; {
	case en.Start != nil:
		h := a.keys.keyHash(en.Start.Key)
		if a.seen[h] {
			return bad("a second start of one operation")
		}
		a.seen[h], a.open[f.index] = true, true
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
	a.tree.add(f.payload)
	for _, p := range a.points {
		if p.size == a.tree.size && p.root != a.tree.root() {
			return bad(fmt.Sprintf("a checkpoint of %d records does not fit: one of them was changed", p.size))
		}
		if p.size == a.tree.size {
			a.report.Covered = p.size
		}
	}
	return nil
}

// begin reads the first record and, with its key, the checkpoints.
func (a *auditor) begin(f frame) error {
	seg, err := decodeSegment(f.payload)
	if err != nil {
		return err
	}
	if f.index != 0 || seg.first != 0 {
		return errors.New("the record of a segment is not where it belongs")
	}
	verifier, err := note.NewVerifier(seg.verifier)
	if err != nil {
		return err
	}
	a.report.ID, a.report.Birth, a.report.VerifierKey = seg.id, seg.birth, seg.verifier
	for i, b := range a.kept {
		p, err := openCheckpoint(b, verifier)
		if err != nil {
			return fmt.Errorf("checkpoint %d was not signed by this ledger's key: %w", i, err)
		}
		if p.id != seg.id {
			return fmt.Errorf("checkpoint %d is of another ledger", i)
		}
		a.points = append(a.points, p)
	}
	return nil
}
