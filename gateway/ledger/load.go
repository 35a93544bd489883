package ledger

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/lendcli/lend/gateway/ledger/folder"
	"github.com/lendcli/lend/gateway/ledger/record"
	"github.com/lendcli/lend/gateway/ledger/segment"
)

func open(c Config) (*Ledger, error) {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.openFile == nil {
		c.openFile = folder.Open
	}
	unlock, empty, err := folder.Enter(c.Dir)
	if err != nil {
		return nil, err
	}
	l := &Ledger{dir: c.Dir, now: c.Now, unlock: unlock, recovery: Recovery{Created: empty}}
	if empty {
		err = folder.Create(c.Dir, c.Now())
	}
	if err == nil {
		err = l.load(c.openFile)
	}
	if err != nil {
		return nil, errors.Join(err, unlock())
	}
	return l, nil
}

// load reads the file and leaves the ledger ready for starts.
func (l *Ledger) load(openFile func(dir string, flag int) (folder.File, error)) error {
	ld, err := newLoader(l.dir)
	if err != nil {
		return err
	}
	f, err := openFile(l.dir, os.O_RDWR)
	if err != nil {
		return err
	}
	size, err := f.Size()
	if err != nil {
		return errors.Join(err, f.Close())
	}
	s := segment.Scan(f, size)
	ld.views = newViews(int(size / 512))
	if err := ld.read(s); errors.Is(err, segment.ErrTorn) {
		l.recovery.TornTail = size - s.Offset()
	} else if err != nil {
		return errors.Join(err, f.Close())
	}
	l.keys, l.id, l.birth, l.views = ld.keys, ld.seg.ID, ld.seg.Birth, ld.views
	l.high = ld.high
	l.log = &log{f: f, size: s.Offset(), tree: ld.tree, signed: ld.point.Size}
	if err := l.recover(ld.open); err != nil {
		return errors.Join(err, f.Close())
	}
	return nil
}

// recover cuts a torn tail off and gives every operation an end that has none.
// What was read may never have been durable, so that comes first. spec: LEDGER-14,
// LEDGER-15.
func (l *Ledger) recover(unfinished map[uint64]folder.Hash) error {
	if l.recovery.TornTail > 0 {
		if err := l.log.f.Truncate(l.log.size); err != nil {
			return err
		}
	}
	if err := l.log.f.Datasync(); err != nil {
		return err
	}
	l.log.synced = l.log.size
	l.log.reserved = folder.TakeReserve(l.dir) == nil
	g := l.join(nil, durable)
	if l.recovery.TornTail > 0 {
		facts := map[string]string{"bytes": strconv.FormatInt(l.recovery.TornTail, 10)}
		g.entries = append(g.entries, &entry{payload: Event{Name: "ledger.repaired", Facts: facts}.Encode(l.now())})
	}
	for _, index := range slices.Sorted(maps.Keys(unfinished)) {
		e := End{State: StateUnknown, At: l.now()}
		g.entries = append(g.entries, &entry{payload: e.Encode(index), op: &operation{hash: unfinished[index]}})
	}
	l.recovery.Unknown = len(unfinished)
	if len(g.entries) > 0 {
		l.busy = true
		l.lead()
	}
	l.next = nil
	l.recovery.Records = l.log.tree.Size()
	return g.err
}

func (l *Ledger) close() error {
	err := l.commit(nil, final)
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	l.mu.Lock()
	first := l.unlock
	l.closed, l.unlock = true, nil
	l.mu.Unlock()
	if first == nil {
		return nil
	}
	if err := errors.Join(err, l.log.f.Close(), first()); err != nil {
		return fmt.Errorf("close ledger: %w", err)
	}
	return nil
}

// loader builds the views from the records of a file.
type loader struct {
	keys  folder.Keys
	views views
	tree  segment.Tree
	seg   record.Segment
	high  time.Time
	// open holds the operations that have no end yet, by the index of their start.
	open map[uint64]folder.Hash
	// point is the newest checkpoint that was signed.
	point   segment.Checkpoint
	pointOK bool
}

func newLoader(dir string) (*loader, error) {
	k, err := folder.ReadKeys(dir)
	if err != nil {
		return nil, err
	}
	verifier, err := note.NewVerifier(k.VerifierKey)
	if err != nil {
		return nil, err
	}
	b, err := folder.ReadCheckpoint(dir)
	if err != nil {
		return nil, err
	}
	point, err := segment.OpenCheckpoint(b, verifier)
	if err != nil {
		return nil, &segment.DamageError{What: err.Error()}
	}
	return &loader{keys: k, point: point, open: make(map[uint64]folder.Hash)}, nil
}

// read reads all records. At a torn tail it returns segment.ErrTorn; s.Offset() is where the
// good part ends.
func (ld *loader) read(s *segment.Scanner) error {
	for {
		f, err := s.Next()
		if errors.Is(err, io.EOF) || errors.Is(err, segment.ErrTorn) {
			if ld.tree.Size() == 0 || !ld.pointOK {
				return &segment.DamageError{Offset: s.Offset(), Index: ld.tree.Size(), What: "fewer records than the newest checkpoint covers"}
			}
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if err != nil {
			return err
		}
		if err := ld.add(f); err != nil {
			return err
		}
	}
}

func (ld *loader) add(f segment.Frame) error {
	bad := func(what string) error { return &segment.DamageError{Offset: f.Offset, Index: f.Index, What: what} }
	var err error
	switch kind := f.Payload[0]; {
	case (f.Index == 0) != (kind == record.KindSegment):
		return bad("the record of a segment is not where it belongs")
	case kind == record.KindSegment:
		err = ld.addSegment(f)
	case kind == record.KindStart:
		err = ld.addStart(f, bad)
	case kind == record.KindEnd || kind == record.KindNotStarted || kind == record.KindUnknown:
		err = ld.addEnd(f, bad)
	case kind == record.KindRefusal || kind == record.KindEvent:
	default:
		return bad(fmt.Sprintf("kind %d is unknown", kind))
	}
	if err != nil {
		if errors.Is(err, ErrCorrupt) {
			return err
		}
		return bad(err.Error())
	}
	if at := record.Time(f.Payload); at.After(ld.high) {
		ld.high = at
	}
	ld.tree.Add(f.Payload)
	if ld.tree.Size() == ld.point.Size {
		if ld.tree.Root() != ld.point.Root {
			return bad("the records before are not those that the newest checkpoint covers")
		}
		ld.pointOK = true
	}
	return nil
}

func (ld *loader) addSegment(f segment.Frame) (err error) {
	if ld.seg, err = record.DecodeSegment(f.Payload); err != nil {
		return err
	}
	if ld.seg.VerifierKey != ld.keys.VerifierKey || ld.seg.ID != ld.point.ID || ld.seg.First != f.Index {
		return errors.New("the first record does not fit the keys")
	}
	return nil
}

func (ld *loader) addStart(f segment.Frame, bad func(string) error) error {
	s, err := record.ViewStart(f.Payload)
	if err != nil {
		return err
	}
	h := ld.keys.Operation(s.Issuer, s.Holder, s.Invocation, s.Operation)
	if _, ok := ld.views.places[h]; ok {
		return bad("a second start of one operation")
	}
	ld.views.places[h] = place{start: f.Offset}
	ld.open[f.Index] = h
	ld.views.operations[ld.keys.Lease(s.Issuer, s.Lease)]++
	if s.HasFrozen {
		scope := ld.keys.Scope(s.Issuer, s.Holder, s.Invocation)
		if _, ok := ld.views.frozen[scope]; !ok {
			ld.views.frozen[scope] = f.Offset
		}
	}
	return nil
}

func (ld *loader) addEnd(f segment.Frame, bad func(string) error) error {
	of, whole := record.EndOf(f.Payload)
	h, ok := ld.open[of]
	if !whole || !ok {
		return bad("an end without a start")
	}
	delete(ld.open, of)
	p := ld.views.places[h]
	p.end = f.Offset
	ld.views.places[h] = p
	return nil
}
