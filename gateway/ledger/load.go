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

	"github.com/lendcli/lend/gateway/ledger/chain"
	"github.com/lendcli/lend/gateway/ledger/folder"
	"github.com/lendcli/lend/gateway/ledger/record"
	"github.com/lendcli/lend/gateway/ledger/segment"
	"github.com/lendcli/lend/gateway/ledger/snapshot"
)

func (c *Config) complete() {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.openFile == nil {
		c.openFile = folder.Open
	}
	if c.segmentBytes == 0 {
		c.segmentBytes = segmentBytes
	}
}

func open(c Config) (*Ledger, error) {
	c.complete()
	unlock, empty, err := folder.Enter(c.Dir)
	if err != nil {
		return nil, err
	}
	l, err := enter(c, empty)
	if err != nil {
		return nil, errors.Join(err, unlock())
	}
	l.unlock = unlock
	return l, nil
}

// enter opens a ledger in a directory that is taken, or makes one.
func enter(c Config, empty bool) (*Ledger, error) {
	l := &Ledger{cfg: c, dir: folder.Folder{Path: c.Dir, Step: c.step}, now: c.Now, recovery: Recovery{Created: empty}}
	if empty {
		if err := create(l.dir, c.Now(), "not known: it was interrupted"); err != nil {
			return nil, err
		}
	}
	if err := l.load(); err != nil {
		if l.log != nil {
			err = errors.Join(err, l.log.f.Close())
		}
		return nil, err
	}
	return l, nil
}

// load reads the files and leaves the ledger ready for starts.
func (l *Ledger) load() error {
	keys, err := folder.ReadKeys(l.cfg.Dir)
	if err != nil {
		return err
	}
	ld := &loader{dir: l.dir, now: l.now, keys: keys, views: newViews(), open: make(map[uint64]folder.Hash)}
	if err := ld.survey(); err != nil {
		return err
	}
	for i := range ld.heads[1:] {
		if err := ld.finished(&ld.heads[i], &ld.heads[i+1].Segment); err != nil {
			return err
		}
	}
	h := ld.heads[len(ld.heads)-1]
	f, err := l.cfg.openFile(l.cfg.Dir, h.Segment.First, os.O_RDWR)
	if err != nil {
		return err
	}
	l.log = &log{f: f, head: h.Segment, sealed: ld.sealed, index: snapshot.New(h.Segment.First), closedTree: ld.closedTree}
	if l.recovery.TornTail, err = ld.active(f, h.Segment, l.log); err != nil {
		return err
	}
	l.log.signed, l.log.tree = ld.point.Size, ld.tree
	l.keys, l.id, l.birth, l.views, l.high = ld.keys, h.Segment.ID, h.Segment.Birth, ld.views, ld.high
	l.recovery.Rebuilt = ld.rebuilt
	l.files = files{active: f, base: int64(h.Segment.Base), sealed: ld.sealed, dir: l.cfg.Dir}
	if err := l.recover(ld.open); err != nil {
		return err
	}
	return l.tidy()
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
	l.full = !l.takeReserve()
	g := l.join(nil, durable)
	if l.recovery.TornTail > 0 {
		facts := map[string]string{"bytes": strconv.FormatInt(l.recovery.TornTail, 10)}
		g.entries = append(g.entries, &entry{payload: Event{Name: "ledger.repaired", Facts: facts}.Encode(l.now()), event: true, lost: dropped{records: 1}})
	}
	for _, index := range slices.Sorted(maps.Keys(unfinished)) {
		e := End{State: StateUnknown, At: l.now()}
		g.entries = append(g.entries, &entry{payload: e.Encode(index), op: &operation{hash: unfinished[index], index: index}})
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

// tidy prunes what may go, once, when the ledger is opened.
func (l *Ledger) tidy() error {
	if p := l.plan(maxPrunedAtOpen); p != nil {
		if err := l.rotate(p); errors.Is(err, ErrFailed) {
			return err
		}
	}
	l.recovery.Records = l.log.tree.Size()
	l.size = l.recovery.Records
	return nil
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

// loader builds the views from the files.
type loader struct {
	dir   folder.Folder
	now   func() time.Time
	keys  folder.Keys
	views views
	heads []chain.Head
	tree  segment.Tree
	high  time.Time
	// open holds the operations that have no end yet, by the index of their start.
	open map[uint64]folder.Hash
	// point is the newest checkpoint that was signed.
	point      segment.Checkpoint
	pointOK    bool
	closedTree segment.Tree
	sealed     []sealed
	rebuilt    int
}

// finished takes a segment that was ended before next was begun: from its snapshot,
// or by reading all of it.
func (ld *loader) finished(h *chain.Head, next *record.Segment) error {
	size := int64(next.Base - h.Segment.Base)
	bad := func(what string) error { return &segment.DamageError{Index: h.Segment.First, What: what} }
	if h.Size != size {
		return bad(fmt.Sprintf("its segment has %d bytes, and should have %d", h.Size, size))
	}
	after, _ := segment.Resume(next.First, next.Edge)
	x := ld.snapshot(h.Segment, next, after.Root())
	if x == nil {
		var err error
		if x, err = ld.rebuild(h.Segment, size); err != nil {
			return err
		}
		if ld.tree.Size() != next.First || ld.tree.Root() != after.Root() {
			return bad("its segment is not the one that the next one follows")
		}
		ld.rebuilt++
		x.Seal(next.First-h.Segment.First, size, after.Root())
		if b, err := x.Encode(h.Segment.ID, &ld.keys); err == nil {
			_ = ld.dir.WriteSnapshot(x.First, b) // a cache
		}
	} else if err := ld.apply(x, int64(h.Segment.Base)); err != nil {
		return err
	}
	ld.tree = after
	ld.sealed = append(ld.sealed, sealed{first: x.First, base: int64(h.Segment.Base), until: x.Until, high: x.High})
	if t := time.UnixMilli(x.High).UTC(); t.After(ld.high) {
		ld.high = t
	}
	return nil
}

// snapshot returns the index of a segment if there is one that is exactly of it.
// spec: LEDGER-32.
func (ld *loader) snapshot(seg record.Segment, next *record.Segment, root [32]byte) *snapshot.Index {
	b, err := folder.ReadSnapshot(ld.dir.Path, seg.First)
	if err != nil {
		return nil
	}
	x, err := snapshot.Decode(b, seg.ID, &ld.keys)
	if err != nil || x.First != seg.First || x.Records != next.First-seg.First || x.Size != int64(next.Base-seg.Base) || x.Root != root {
		return nil
	}
	return x
}

// rebuild reads a finished segment.
func (ld *loader) rebuild(seg record.Segment, size int64) (*snapshot.Index, error) {
	f, err := folder.Open(ld.dir.Path, seg.First, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	x := snapshot.New(seg.First)
	s := segment.Scan(f, size, seg.First)
	err = ld.read(s, seg, x)
	if errors.Is(err, segment.ErrTorn) {
		err = &segment.DamageError{Offset: s.Offset(), Index: ld.tree.Size(), What: "torn, in a segment that was finished"}
	}
	return x, errors.Join(err, f.Close())
}

// active reads the newest segment; it returns the bytes of a torn tail.
func (ld *loader) active(f folder.File, seg record.Segment, into *log) (torn int64, err error) {
	size, err := f.Size()
	if err != nil {
		return 0, err
	}
	if seg.First > 0 && ld.point.Size == seg.First {
		ld.pointOK = ld.tree.Root() == ld.point.Root
	}
	s := segment.Scan(f, size, seg.First)
	if err = ld.read(s, seg, into.index); errors.Is(err, segment.ErrTorn) {
		torn = size - s.Offset()
	} else if err != nil {
		return 0, err
	}
	if ld.tree.Size() == 0 || !ld.pointOK {
		return 0, &segment.DamageError{Offset: s.Offset(), Index: ld.tree.Size(), What: "fewer records than the newest checkpoint covers"}
	}
	into.size = s.Offset()
	return torn, nil
}

// read reads all records of a segment. At a torn tail it returns segment.ErrTorn;
// s.Offset() is where the good part ends.
func (ld *loader) read(s *segment.Scanner, seg record.Segment, x *snapshot.Index) error {
	for {
		f, err := s.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := ld.add(f, seg, x); err != nil {
			return err
		}
	}
}

func (ld *loader) add(f segment.Frame, seg record.Segment, x *snapshot.Index) error {
	bad := func(what string) error { return &segment.DamageError{Offset: f.Offset, Index: f.Index, What: what} }
	var err error
	switch kind := f.Payload[0]; {
	case (f.Index == seg.First) != record.IsSegment(f.Payload):
		return bad("the record of a segment is not where it belongs")
	case record.IsSegment(f.Payload): // survey has read it
	case kind == record.KindStart, kind == record.KindDelegated:
		err = ld.addStart(f, int64(seg.Base), x)
	case kind == record.KindEnd || kind == record.KindNotStarted || kind == record.KindUnknown:
		of, whole := record.EndOf(f.Payload)
		if !whole {
			return bad("an end without a start")
		}
		x.AddEnd(snapshot.End{Of: of, Offset: f.Offset})
		err = ld.addEnd(of, int64(seg.Base)+f.Offset)
	case kind == record.KindRefusal || kind == record.KindEvent:
	default:
		return bad(fmt.Sprintf("kind %d is unknown", kind))
	}
	if err != nil {
		return bad(err.Error())
	}
	at := record.Time(f.Payload)
	x.Seen(at)
	if at.After(ld.high) {
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

var (
	errSecondStart = errors.New("a second start of one operation")
	errNoStart     = errors.New("an end without a start")
	errNoFirst     = errors.New("a start without a grant, and none before it")
)

func (ld *loader) addStart(f segment.Frame, base int64, x *snapshot.Index) error {
	s, err := record.ViewStart(f.Payload)
	if err != nil {
		return err
	}
	h := ld.keys.Operation(s.Issuer, s.Holder, s.Invocation, s.Operation)
	if _, ok := ld.views.places[h]; ok {
		return errSecondStart
	}
	scope := ld.keys.Scope(s.Issuer, s.Holder, s.Invocation)
	x.AddStart(snapshot.Start{Index: f.Index, Offset: f.Offset, Hash: h}, scope, s.NotAfter(), s.HasFrozen)
	for issuer, lease := range s.Counted() {
		counted := ld.keys.Lease(issuer, lease)
		x.AddLease(counted)
		ld.views.operations[counted]++
	}
	ld.views.places[h] = place{start: base + f.Offset}
	ld.open[f.Index] = h
	grant := int64(-1)
	if s.HasFrozen {
		grant = base + f.Offset
	}
	if !ld.views.widen(scope, grant, s.NotAfter().UnixMilli()) {
		return errNoFirst
	}
	return nil
}

// addEnd takes an end; that of a start which was pruned says nothing any more.
func (ld *loader) addEnd(of uint64, at int64) error {
	h, ok := ld.open[of]
	if !ok {
		if of < ld.heads[0].Segment.First {
			return nil
		}
		return errNoStart
	}
	delete(ld.open, of)
	p := ld.views.places[h]
	p.end = at
	ld.views.places[h] = p
	return nil
}

// apply puts the index of a segment into the views, as reading its records would.
func (ld *loader) apply(x *snapshot.Index, base int64) error {
	bad := func(err error) error { return &segment.DamageError{Index: x.First, What: err.Error()} }
	ended := make([]int64, len(x.Starts))
	for _, e := range x.Ends {
		if i, ok := x.Find(e.Of); ok {
			ended[i] = base + e.Offset
		} else if err := ld.addEnd(e.Of, base+e.Offset); err != nil {
			return bad(err)
		}
	}
	before := len(ld.views.places)
	for i, s := range x.Starts {
		ld.views.places[s.Hash] = place{base + s.Offset, ended[i]}
		if ended[i] == 0 {
			ld.open[s.Index] = s.Hash
		}
	}
	if len(ld.views.places) != before+len(x.Starts) {
		return bad(errSecondStart)
	}
	for h, n := range x.Leases {
		ld.views.operations[h] += n
	}
	for h, s := range x.Scopes {
		grant := s.Frozen
		if grant >= 0 {
			grant += base
		}
		if !ld.views.widen(h, grant, s.Until) {
			return bad(errNoFirst)
		}
	}
	return nil
}
