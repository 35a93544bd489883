package ledger

import (
	"bytes"
	"crypto/subtle"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/lendcli/lend/gateway/ledger/chain"
	"github.com/lendcli/lend/gateway/ledger/folder"
	"github.com/lendcli/lend/gateway/ledger/record"
	"github.com/lendcli/lend/gateway/ledger/segment"
	"github.com/lendcli/lend/gateway/ledger/snapshot"
	"github.com/lendcli/lend/protocol/name"
)

// views are what the records say, kept small: a record that is on disk is two
// offsets here, and is read again when somebody asks for it. Ledger.mu guards them.
type views struct {
	places     map[folder.Hash]place
	scopes     map[folder.Hash]scope  // per (issuer, invocation, holder)
	operations map[folder.Hash]uint32 // per (issuer, lease): recorded and reserved
	// live holds operations from Reserve until their end is in the file.
	live map[folder.Hash]*operation
	// freezing holds grants that no record has yet.
	freezing map[folder.Hash]*freezing
	// closed and closing are scopes that start nothing more, ascending: those whose
	// records are gone, and those whose records are about to go.
	closed, closing []folder.Hash
}

// place is where the records of an operation are: bytes from the begin of the first
// segment that there ever was.
type place struct{ start, end int64 }

type scope struct {
	frozen int64 // the place of the Start that has the grant; -1 if it is gone
	until  int64 // greatest lease not-after, in Unix milliseconds
}

// operation is one that is not over, or whose end is not in the file yet. All
// fields that change are guarded by Ledger.mu.
type operation struct {
	key           Key
	digest        [32]byte
	leaseID       [16]byte
	above         []record.Link
	hash          folder.Hash
	scope         folder.Hash
	budgets       []budget // of each link, root first
	phase         phase
	settled       chan struct{} // closed when the phase leaves pending
	record        *Start
	index         uint64
	end           *End
	freezing      *freezing // nil once a record has the grant
	proposedGrant []byte
}

// budget is what one lease allows.
type budget struct {
	lease folder.Hash
	most  int
}

// budgetsOf lists the leases that an operation counts against. Each is the word of
// its own issuer: a holder that chose the ID of another's lease for its link would
// spend nothing of it. spec: LEDGER-19.
func (l *Ledger) budgetsOf(c Claim) ([]budget, []record.Link) {
	var budgets []budget
	var above []record.Link
	issuer := c.Issuer
	for _, o := range c.Above {
		budgets = append(budgets, budget{l.leaseHash(issuer, o.Lease), o.MaxOperations})
		above = append(above, record.Link{Lease: o.Lease, Holder: o.Holder})
		issuer = o.Holder
	}
	return append(budgets, budget{l.leaseHash(issuer, c.Lease), c.MaxOperations}), above
}

func (v *views) exhausted(budgets []budget) bool {
	return slices.ContainsFunc(budgets, func(b budget) bool {
		return b.most < 1 || v.operations[b.lease] >= uint32(min(b.most, 1<<30))
	})
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

func newViews() views {
	return views{
		places: make(map[folder.Hash]place), scopes: make(map[folder.Hash]scope), operations: make(map[folder.Hash]uint32),
		live: make(map[folder.Hash]*operation), freezing: make(map[folder.Hash]*freezing),
	}
}

var (
	errNoGrant    = errors.New("no grant to freeze")
	errTwice      = errors.New("the reservation is used up")
	errNotRunning = errors.New("the operation is not running")
)

func (l *Ledger) reserve(c Claim) (Outcome, error) {
	if err := c.Check(); err != nil {
		return Outcome{}, err
	}
	op := &operation{
		key: c.Key, digest: c.Digest, leaseID: c.Lease, hash: l.operationHash(c.Key),
		scope:   l.scopeHash(c.Issuer, c.Invocation, c.Holder),
		settled: make(chan struct{}), proposedGrant: c.Frozen,
	}
	op.budgets, op.above = l.budgetsOf(c)
	out, at, err := l.take(op)
	switch {
	case err != nil:
		return Outcome{}, err
	case at == nil:
		return out, nil
	case out.Reservation == nil:
		return l.recorded(*at, &c.Digest)
	}
	if out.Reservation.frozen, err = l.grantAt(at.start); err != nil {
		l.release(op)
		return gone(err)
	}
	return out, nil
}

// gone is the outcome of what could not be read: an error, or, if the record was
// pruned meanwhile, that the invocation is closed.
func gone(err error) (Outcome, error) {
	if errors.Is(err, errPruned) {
		return Outcome{State: StateClosed}, nil
	}
	return Outcome{}, err
}

// take decides in memory, in one step. A place is where the rest has to be read
// from: the frozen grant of a reservation, or the whole outcome where there is
// none.
func (l *Ledger) take(op *operation) (Outcome, *place, error) {
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
	sc, isFrozen := l.views.scopes[op.scope]
	switch {
	case l.closed:
		return Outcome{}, nil, os.ErrClosed
	case l.views.isClosed(op.scope):
		return Outcome{State: StateClosed}, nil, nil
	case l.err != nil:
		return Outcome{}, nil, l.err
	case l.views.exhausted(op.budgets):
		return Outcome{State: StateExhausted}, nil, nil
	case !isFrozen && len(op.proposedGrant) == 0:
		return Outcome{}, nil, errNoGrant
	case len(op.proposedGrant) > record.MaxFrozen:
		return Outcome{}, nil, fmt.Errorf("frozen grant of more than %d bytes", record.MaxFrozen)
	}
	l.views.live[op.hash] = op
	for _, b := range op.budgets {
		l.views.operations[b.lease]++
	}
	out := Outcome{Reservation: &Reservation{l: l, op: op}}
	if isFrozen {
		return out, &place{start: sc.frozen}, nil
	}
	out.Reservation.frozen = l.views.freeze(op)
	return out, nil, nil
}

// isClosed tells whether a scope starts nothing more. spec: LEDGER-31.
func (v *views) isClosed(scope folder.Hash) bool {
	return chain.Contains(v.closing, scope) || chain.Contains(v.closed, scope)
}

// anyLive tells whether an operation of one of these scopes is not over.
func (v *views) anyLive(scopes []folder.Hash) bool {
	for _, op := range v.live {
		if chain.Contains(scopes, op.scope) {
			return true
		}
	}
	return false
}

// widen adds a start record to its scope: at is its place if it has the grant, else
// -1. False: it is the first of a scope that is not closed, and has no grant.
func (v *views) widen(h folder.Hash, at, until int64) bool {
	sc, ok := v.scopes[h]
	switch {
	case !ok && chain.Contains(v.closed, h):
		return true
	case !ok && at < 0:
		return false
	case !ok:
		sc.frozen = at
	}
	sc.until = max(sc.until, until)
	v.scopes[h] = sc
	return true
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
	for _, b := range op.budgets {
		if v.operations[b.lease]--; v.operations[b.lease] == 0 {
			delete(v.operations, b.lease)
		}
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
	if err := k.Check(); err != nil {
		return Outcome{}, err
	}
	h := l.operationHash(k)
	l.mu.Lock()
	op, ok := l.views.live[h]
	if ok {
		defer l.mu.Unlock()
		return op.outcome(), nil
	}
	at, ok := l.views.places[h]
	closed := l.views.isClosed(l.scopeHash(k.Issuer, k.Invocation, k.Holder))
	l.mu.Unlock()
	switch {
	case ok:
		return l.recorded(at, nil)
	case closed:
		return Outcome{State: StateClosed}, nil
	}
	return Outcome{}, nil
}

// recorded reads an operation that is over.
func (l *Ledger) recorded(at place, digest *[32]byte) (Outcome, error) {
	s, err := l.readStart(at.start)
	if err != nil {
		return gone(err)
	}
	if digest != nil && subtle.ConstantTimeCompare(s.Digest[:], digest[:]) != 1 {
		return Outcome{State: StateConflict}, nil
	}
	payload, err := l.readFrame(at.end)
	if err != nil {
		return gone(err)
	}
	e, _, err := record.DecodeEnd(payload)
	if err != nil {
		return Outcome{}, &segment.DamageError{Offset: at.end, What: err.Error()}
	}
	return Outcome{State: e.State, Start: s, End: e}, nil
}

func (l *Ledger) readStart(at int64) (*Start, error) {
	payload, err := l.readFrame(at)
	if err != nil {
		return nil, err
	}
	s, err := record.DecodeStart(payload)
	if err != nil {
		return nil, &segment.DamageError{Offset: at, What: err.Error()}
	}
	return s, nil
}

func (l *Ledger) start(op *operation, s Start) error {
	s.Key, s.Digest, s.Lease, s.At, s.Frozen = op.key, op.digest, op.leaseID, l.now().UTC().Truncate(time.Millisecond), nil
	s.Above = op.above
	if err := s.Check(); err != nil {
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
	if _, ok := l.views.scopes[op.scope]; !ok && op.freezing != nil {
		s.Frozen = op.freezing.grant
	}
	l.mu.Unlock()
	return l.commit(&entry{payload: s.Encode(), op: op, start: true}, durable)
}

func (l *Ledger) end(op *operation, e End) error {
	if e.At.IsZero() {
		e.At = l.now()
	}
	e.At, e.Detail = e.At.UTC().Truncate(time.Millisecond), record.Clip(e.Detail, record.MaxDetail)
	if err := e.Check(); err != nil {
		return err
	}
	l.mu.Lock()
	if op.phase != phaseRunning {
		l.mu.Unlock()
		return errNotRunning
	}
	op.phase, op.end = phaseEnded, &e
	l.mu.Unlock()
	return l.commit(&entry{payload: e.Encode(op.index), op: op}, written)
}

// enter puts a record that is in the active segment, at this offset, into the views
// and its index. l.mu is held.
func (l *Ledger) enter(en *entry, off int64, index uint64) {
	v, op := &l.views, en.op
	at := int64(l.log.head.Base) + off
	switch {
	case op == nil:
	case en.start:
		op.phase, op.index = phaseRunning, index
		v.places[op.hash] = place{start: at}
		until := op.record.LeaseNotAfter
		grant := len(op.record.Frozen) > 0
		l.log.index.AddStart(snapshot.Start{Index: index, Offset: off, Hash: op.hash}, op.scope, until, grant)
		for _, b := range op.budgets {
			l.log.index.AddLease(b.lease)
		}
		if grant {
			v.widen(op.scope, at, until.UnixMilli())
		} else {
			v.widen(op.scope, -1, until.UnixMilli())
		}
		delete(v.freezing, op.scope)
		op.freezing, op.proposedGrant = nil, nil
		op.record.Frozen = nil
		close(op.settled)
	default:
		l.log.index.AddEnd(snapshot.End{Of: op.index, Offset: off})
		p := v.places[op.hash]
		p.end = at
		v.places[op.hash] = p
		delete(v.live, op.hash)
	}
}

func (l *Ledger) operationHash(k Key) folder.Hash {
	return l.keys.Operation(k.Issuer.Key(), k.Holder.Key(), []byte(k.Invocation.String()), []byte(k.Operation.String()))
}

func (l *Ledger) scopeHash(issuer name.PeerID, invocation name.InvocationID, holder name.PeerID) folder.Hash {
	return l.keys.Scope(issuer.Key(), holder.Key(), []byte(invocation.String()))
}

func (l *Ledger) leaseHash(issuer name.PeerID, lease [16]byte) folder.Hash {
	return l.keys.Lease(issuer.Key(), lease[:])
}
