package ledger

import (
	"bytes"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/mod/sumdb/note"
)

// views are what the records say, kept small: a record that is on disk is two
// offsets here, and is read again when somebody asks for it. Ledger.mu guards them.
type views struct {
	places     map[hash]place
	frozen     map[hash]int64  // the Start that froze (issuer, invocation, holder)
	operations map[hash]uint32 // per (issuer, lease): recorded and reserved
	// live holds operations from Reserve until their end is in the file.
	live map[hash]*operation
	// freezing holds grants that no record has yet.
	freezing map[hash]*freezing
}

type place struct{ start, end int64 }

// operation is one that is not over, or whose end is not in the file yet. All
// fields that change are guarded by Ledger.mu.
type operation struct {
	key           Key
	digest        [32]byte
	leaseID       [16]byte
	hash          hash
	scope, lease  hash
	phase         phase
	settled       chan struct{} // closed when the phase leaves pending
	record        *Start
	index         uint64
	end           *End
	freezing      *freezing // nil once a record has the grant
	proposedGrant []byte
}

type phase uint8

const (
	phaseReserved phase = iota
	phaseStarting
	phaseRunning
	phaseEnded
	phaseGone // released, or its Start failed
)

type freezing struct {
	grant []byte
	users int
}

func newViews(records int) views {
	return views{
		places: make(map[hash]place, records), frozen: make(map[hash]int64), operations: make(map[hash]uint32),
		live: make(map[hash]*operation), freezing: make(map[hash]*freezing),
	}
}

var (
	errNoGrant    = errors.New("no grant to freeze")
	errTwice      = errors.New("the reservation is used up")
	errNotRunning = errors.New("the operation is not running")
)

func (l *Ledger) reserve(c Claim) (Outcome, error) {
	if err := c.check(); err != nil {
		return Outcome{}, err
	}
	op := &operation{
		key: c.Key, digest: c.Digest, leaseID: c.Lease, hash: l.keys.keyHash(c.Key),
		scope: l.keys.scopeHash(c.Issuer, c.Invocation, c.Holder), lease: l.keys.leaseHash(c.Issuer, c.Lease),
		settled: make(chan struct{}), proposedGrant: c.Frozen,
	}
	out, at, err := l.take(op, c.MaxOperations)
	switch {
	case err != nil:
		return Outcome{}, err
	case at == nil:
		return out, nil
	case out.Reservation == nil:
		return l.recorded(*at, &c.Digest)
	}
	first, err := l.readStart(at.start)
	if err != nil {
		l.release(op)
		return Outcome{}, err
	}
	out.Reservation.frozen = first.Frozen
	return out, nil
}

// take decides in memory, in one step. A place is where the rest has to be read
// from: the frozen grant of a reservation, or the whole outcome where there is
// none.
func (l *Ledger) take(op *operation, maxOperations int) (Outcome, *place, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if other, ok := l.views.live[op.hash]; ok {
		if subtle.ConstantTimeCompare(other.digest[:], op.digest[:]) != 1 {
			return Outcome{State: StateConflict}, nil, nil
		}
		return other.outcome(), nil, nil
	}
	if at, ok := l.views.places[op.hash]; ok {
		return Outcome{}, &at, nil
	}
	frozenAt, isFrozen := l.views.frozen[op.scope]
	switch {
	case l.closed:
		return Outcome{}, nil, os.ErrClosed
	case l.err != nil:
		return Outcome{}, nil, l.err
	case maxOperations < 1 || l.views.operations[op.lease] >= uint32(min(maxOperations, 1<<30)):
		return Outcome{State: StateExhausted}, nil, nil
	case !isFrozen && len(op.proposedGrant) == 0:
		return Outcome{}, nil, errNoGrant
	case len(op.proposedGrant) > MaxFrozen:
		return Outcome{}, nil, fmt.Errorf("frozen grant of more than %d bytes", MaxFrozen)
	}
	l.views.live[op.hash] = op
	l.views.operations[op.lease]++
	out := Outcome{Reservation: &Reservation{l: l, op: op}}
	if isFrozen {
		return out, &place{start: frozenAt}, nil
	}
	out.Reservation.frozen = l.views.freeze(op)
	return out, nil, nil
}

// freeze joins the grant that is about to be frozen, or proposes one.
func (v *views) freeze(op *operation) []byte {
	f := v.freezing[op.scope]
	if f == nil {
		f = &freezing{grant: bytes.Clone(op.proposedGrant)}
		v.freezing[op.scope] = f
	}
	f.users++
	op.freezing = f
	return f.grant
}

func (op *operation) outcome() Outcome {
	switch op.phase {
	case phaseRunning:
		return Outcome{State: StateRunning, Start: op.record}
	case phaseEnded:
		end := *op.end
		return Outcome{State: end.State, Start: op.record, End: &end}
	default:
		return Outcome{State: StatePending, Settled: op.settled}
	}
}

// drop takes an operation out of memory that has no record. l.mu is held.
func (v *views) drop(op *operation) {
	op.phase = phaseGone
	delete(v.live, op.hash)
	if v.operations[op.lease]--; v.operations[op.lease] == 0 {
		delete(v.operations, op.lease)
	}
	v.thaw(op)
	close(op.settled)
}

// thaw forgets a grant that nobody is about to freeze any more. l.mu is held.
func (v *views) thaw(op *operation) {
	if f := op.freezing; f != nil {
		op.freezing = nil
		if f.users--; f.users == 0 && v.freezing[op.scope] == f {
			delete(v.freezing, op.scope)
		}
	}
}

func (l *Ledger) release(op *operation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if op.phase == phaseReserved {
		l.views.drop(op)
	}
}

func (l *Ledger) lookup(k Key) (Outcome, error) {
	if err := k.check(); err != nil {
		return Outcome{}, err
	}
	h := l.keys.keyHash(k)
	l.mu.Lock()
	op, ok := l.views.live[h]
	if ok {
		defer l.mu.Unlock()
		return op.outcome(), nil
	}
	at, ok := l.views.places[h]
	l.mu.Unlock()
	if !ok {
		return Outcome{}, nil
	}
	return l.recorded(at, nil)
}

// recorded reads an operation that is over.
func (l *Ledger) recorded(at place, digest *[32]byte) (Outcome, error) {
	s, err := l.readStart(at.start)
	if err != nil {
		return Outcome{}, err
	}
	if digest != nil && subtle.ConstantTimeCompare(s.Digest[:], digest[:]) != 1 {
		return Outcome{State: StateConflict}, nil
	}
	payload, err := readFrame(l.log.f, at.end)
	if err != nil {
		return Outcome{}, err
	}
	e, _, err := decodeEnd(payload)
	if err != nil {
		return Outcome{}, &damage{offset: at.end, what: err.Error()}
	}
	return Outcome{State: e.State, Start: s, End: e}, nil
}

func (l *Ledger) readStart(at int64) (*Start, error) {
	payload, err := readFrame(l.log.f, at)
	if err != nil {
		return nil, err
	}
	s, err := decodeStart(payload)
	if err != nil {
		return nil, &damage{offset: at, what: err.Error()}
	}
	return s, nil
}

func (l *Ledger) start(op *operation, s Start) error {
	s.Key, s.Digest, s.Lease, s.At, s.Frozen = op.key, op.digest, op.leaseID, l.now().UTC().Truncate(time.Millisecond), nil
	if err := s.check(); err != nil {
		return err
	}
	s.Identity, s.Audit = slices.Clone(s.Identity), slices.Clone(s.Audit)
	s.LeaseNotAfter = s.LeaseNotAfter.UTC().Truncate(time.Millisecond)
	l.mu.Lock()
	if op.phase != phaseReserved {
		l.mu.Unlock()
		return errTwice
	}
	op.phase, op.record = phaseStarting, &s
	if _, ok := l.views.frozen[op.scope]; !ok && op.freezing != nil {
		s.Frozen = op.freezing.grant
	}
	l.mu.Unlock()
	return l.commit(&entry{payload: s.encode(), op: op, start: true}, durable)
}

func (l *Ledger) end(op *operation, e End) error {
	if e.At.IsZero() {
		e.At = l.now()
	}
	e.At, e.Detail = e.At.UTC().Truncate(time.Millisecond), clip(e.Detail, MaxDetail)
	if err := e.check(); err != nil {
		return err
	}
	l.mu.Lock()
	if op.phase != phaseRunning {
		l.mu.Unlock()
		return errNotRunning
	}
	op.phase, op.end = phaseEnded, &e
	l.mu.Unlock()
	return l.commit(&entry{payload: e.encode(op.index), op: op}, written)
}

// enter puts a record that is in the file into the views. l.mu is held.
func (l *Ledger) enter(en *entry, at int64, index uint64) {
	v, op := &l.views, en.op
	switch {
	case op == nil:
	case en.start:
		op.phase, op.index = phaseRunning, index
		v.places[op.hash] = place{start: at}
		if _, ok := v.frozen[op.scope]; !ok && op.freezing != nil {
			v.frozen[op.scope] = at
		}
		delete(v.freezing, op.scope)
		op.freezing, op.proposedGrant = nil, nil
		op.record.Frozen = nil
		close(op.settled)
	default:
		p := v.places[op.hash]
		p.end = at
		v.places[op.hash] = p
		delete(v.live, op.hash)
	}
}

func open(c Config) (*Ledger, error) {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.openFile == nil {
		c.openFile = openOSFile
	}
	unlock, empty, err := enterDir(c.Dir)
	if err != nil {
		return nil, err
	}
	l := &Ledger{dir: c.Dir, now: c.Now, unlock: unlock, recovery: Recovery{Created: empty}}
	if empty {
		err = create(c.Dir, c.Now())
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
func (l *Ledger) load(openFile func(path string, flag int) (file, error)) error {
	ld, err := newLoader(l.dir)
	if err != nil {
		return err
	}
	f, err := openFile(filepath.Join(l.dir, segmentName), os.O_RDWR)
	if err != nil {
		return err
	}
	size, err := f.Size()
	if err != nil {
		return errors.Join(err, f.Close())
	}
	s := &scanner{r: f, size: size}
	ld.views = newViews(int(size / 512))
	if err := ld.read(s); errors.Is(err, errTorn) {
		l.recovery.TornTail = size - s.off
	} else if err != nil {
		return errors.Join(err, f.Close())
	}
	l.keys, l.id, l.birth, l.views = ld.keys, ld.seg.id, ld.seg.birth, ld.views
	l.high = time.UnixMilli(int64(ld.high)).UTC()
	l.log = &log{f: f, size: s.off, tree: ld.tree, signed: ld.point.size}
	if err := l.recover(ld.open); err != nil {
		return errors.Join(err, f.Close())
	}
	return nil
}

// recover cuts a torn tail off and gives every operation an end that has none.
// What was read may never have been durable, so that comes first. spec: LEDGER-14,
// LEDGER-15.
func (l *Ledger) recover(unfinished map[uint64]hash) error {
	if l.recovery.TornTail > 0 {
		if err := l.log.f.Truncate(l.log.size); err != nil {
			return err
		}
	}
	if err := l.log.f.Datasync(); err != nil {
		return err
	}
	l.log.synced = l.log.size
	l.log.reserved = takeReserve(l.dir) == nil
	g := l.join(nil, durable)
	if l.recovery.TornTail > 0 {
		facts := map[string]string{"bytes": strconv.FormatInt(l.recovery.TornTail, 10)}
		g.entries = append(g.entries, &entry{payload: encodeEvent(Event{Name: "ledger.repaired", Facts: facts}, l.now())})
	}
	for _, index := range slices.Sorted(maps.Keys(unfinished)) {
		e := End{State: StateUnknown, At: l.now()}
		g.entries = append(g.entries, &entry{payload: e.encode(index), op: &operation{hash: unfinished[index]}})
	}
	l.recovery.Unknown = len(unfinished)
	if len(g.entries) > 0 {
		l.busy = true
		l.lead()
	}
	l.next = nil
	l.recovery.Records = l.log.tree.size
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
	keys  keys
	views views
	tree  tree
	seg   segment
	high  uint64
	// open holds the operations that have no end yet, by the index of their start.
	open map[uint64]hash
	// point is the newest checkpoint that was signed.
	point   checkpoint
	pointOK bool
}

func newLoader(dir string) (*loader, error) {
	k, err := readKeys(dir)
	if err != nil {
		return nil, err
	}
	verifier, err := note.NewVerifier(k.verifier)
	if err != nil {
		return nil, err
	}
	b, err := readSmall(dir, checkpointName)
	if err != nil {
		return nil, err
	}
	point, err := openCheckpoint(b, verifier)
	if err != nil {
		return nil, &damage{what: err.Error()}
	}
	return &loader{keys: k, point: point, open: make(map[uint64]hash)}, nil
}

// read reads all records. At a torn tail it returns errTorn; s.off is where the
// good part ends.
func (ld *loader) read(s *scanner) error {
	for {
		f, err := s.next()
		if errors.Is(err, io.EOF) || errors.Is(err, errTorn) {
			if ld.tree.size == 0 || !ld.pointOK {
				return &damage{offset: s.off, index: s.index, what: "fewer records than the newest checkpoint covers"}
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

func (ld *loader) add(f frame) error {
	bad := func(what string) error { return &damage{offset: f.offset, index: f.index, what: what} }
	var err error
	switch kind := f.payload[0]; {
	case (f.index == 0) != (kind == kindSegment):
		return bad("the record of a segment is not where it belongs")
	case kind == kindSegment:
		err = ld.addSegment(f)
	case kind == kindStart:
		err = ld.addStart(f, bad)
	case kind == kindEnd || kind == kindNotStarted || kind == kindUnknown:
		err = ld.addEnd(f, bad)
	case kind == kindRefusal || kind == kindEvent:
	default:
		return bad(fmt.Sprintf("kind %d is unknown", kind))
	}
	if err != nil {
		if errors.Is(err, ErrCorrupt) {
			return err
		}
		return bad(err.Error())
	}
	d := &decoder{b: f.payload[1:]}
	ld.high = max(ld.high, min(d.uint(), maxTime))
	ld.tree.add(f.payload)
	if ld.tree.size == ld.point.size {
		if ld.tree.root() != ld.point.root {
			return bad("the records before are not those that the newest checkpoint covers")
		}
		ld.pointOK = true
	}
	return nil
}

func (ld *loader) addSegment(f frame) (err error) {
	if ld.seg, err = decodeSegment(f.payload); err != nil {
		return err
	}
	if ld.seg.verifier != ld.keys.verifier || ld.seg.id != ld.point.id || ld.seg.first != f.index {
		return errors.New("the first record does not fit the keys")
	}
	return nil
}

func (ld *loader) addStart(f frame, bad func(string) error) error {
	s, err := viewStart(f.payload)
	if err != nil {
		return err
	}
	h := ld.keys.hash('o', s.issuer, s.holder, s.invocation, s.operation)
	if _, ok := ld.views.places[h]; ok {
		return bad("a second start of one operation")
	}
	ld.views.places[h] = place{start: f.offset}
	ld.open[f.index] = h
	ld.views.operations[ld.keys.hash('l', s.issuer, nil, s.lease, nil)]++
	if s.hasFrozen {
		scope := ld.keys.hash('s', s.issuer, s.holder, s.invocation, nil)
		if _, ok := ld.views.frozen[scope]; !ok {
			ld.views.frozen[scope] = f.offset
		}
	}
	return nil
}

func (ld *loader) addEnd(f frame, bad func(string) error) error {
	d := &decoder{b: f.payload[1:]}
	d.uint()
	of := d.uint()
	h, ok := ld.open[of]
	if d.err != nil || !ok {
		return bad("an end without a start")
	}
	delete(ld.open, of)
	p := ld.views.places[h]
	p.end = f.offset
	ld.views.places[h] = p
	return nil
}
