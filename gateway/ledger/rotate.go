package ledger

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/lendcli/lend/gateway/ledger/chain"
	"github.com/lendcli/lend/gateway/ledger/folder"
	"github.com/lendcli/lend/gateway/ledger/record"
	"github.com/lendcli/lend/gateway/ledger/segment"
	"github.com/lendcli/lend/gateway/ledger/snapshot"
)

const (
	// segmentBytes is when a segment is finished and the next one begun.
	segmentBytes = 8 << 20
	// retryAfter is how many bytes later a rotation is tried again that found no room.
	retryAfter = 1 << 20
	// afterLease is how long after the last lease of an invocation its records are
	// kept at least: the longest life of a lease, and then some for clocks.
	afterLease = 25 * time.Hour
	// A rotation in use prunes few segments, so that starts do not wait long.
	maxPruned       = 2
	maxPrunedAtOpen = 1 << 20
	// maxClosed bounds the closed invocations, at 16 bytes each. Beyond it nothing is
	// pruned: files are kept rather than forgotten.
	maxClosed = 8 << 20
	// forgetAtOnce is how many rows leave the views before others get the lock.
	forgetAtOnce = 2048
)

// sealed is a finished segment.
type sealed struct {
	first       uint64
	base        int64 // bytes of all segments before
	until, high int64 // as in its snapshot
}

// files is where records are read from while the log goes on.
type files struct {
	dir    string
	mu     sync.RWMutex // guards what follows, and the files of sealed
	active folder.File
	base   int64
	sealed []sealed
}

// errPruned: the record is gone, since its invocation is closed.
var errPruned = errors.New("record was pruned")

// readFrame returns the record at a place.
func (l *Ledger) readFrame(at int64) ([]byte, error) {
	f := &l.files
	f.mu.RLock()
	defer f.mu.RUnlock()
	if at >= f.base {
		return segment.ReadFrame(f.active, at-f.base)
	}
	i, ok := slices.BinarySearchFunc(f.sealed, at, func(s sealed, at int64) int {
		if s.base > at {
			return 1
		}
		return -1
	})
	if i == 0 && !ok {
		return nil, errPruned
	}
	s := f.sealed[i-1]
	file, err := folder.Open(f.dir, s.first, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	return segment.ReadFrame(file, at-s.base)
}

// pruning is what goes with a rotation.
type pruning struct {
	gone    []*snapshot.Index
	kept    uint64        // index of the first record that stays
	closing []folder.Hash // ascending
}

// rotateIfDue begins the next segment when the active one is large enough. What
// cannot be done now is tried again later; the error is ErrFailed. A ledger that has
// failed is left as it is: its file may be longer than what is known of it.
func (l *Ledger) rotateIfDue() error {
	works := l.Err() == nil
	if l.log.size < max(l.cfg.segmentBytes, l.log.retryAt) || !l.log.reserved || !works {
		return nil
	}
	err := l.rotate(l.plan(maxPruned))
	if errors.Is(err, ErrFailed) {
		return err
	}
	if err != nil {
		l.log.retryAt = l.log.size + retryAfter
	}
	return nil
}

// plan chooses the oldest segments to prune, and closes their invocations in
// memory; nil if there are none. Only the leader changes scopes, so it may read them
// without the lock. spec: LEDGER-30.
func (l *Ledger) plan(most int) *pruning {
	now := l.now()
	p := &pruning{}
	seen := make(map[folder.Hash]bool)
	for i, s := range l.log.sealed {
		if i == most || !l.due(s, now) || !over(s.until, now) {
			break
		}
		b, err := folder.ReadSnapshot(l.cfg.Dir, s.first)
		if err != nil {
			break // opening makes it again
		}
		x, err := snapshot.Decode(b, l.id, &l.keys)
		if err != nil || x.First != s.first || !l.mayGo(x, now) {
			break
		}
		for h := range x.Scopes {
			if !seen[h] && !chain.Contains(l.views.closed, h) {
				seen[h] = true
				p.closing = append(p.closing, h)
			}
		}
		p.gone = append(p.gone, x)
		p.kept = x.First + x.Records
	}
	slices.SortFunc(p.closing, folder.Hash.Compare)
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(p.gone) == 0 || len(l.views.closed)+len(p.closing) > maxClosed || l.views.anyLive(p.closing) {
		return nil
	}
	l.views.closing = p.closing
	return p
}

// due tells whether nobody wants to keep a segment any more.
func (l *Ledger) due(s sealed, now time.Time) bool {
	kept := int64(l.log.head.Base) + l.log.size - s.base
	return l.cfg.KeepFor > 0 && now.Sub(time.UnixMilli(s.high)) > l.cfg.KeepFor ||
		l.cfg.KeepBytes > 0 && kept > l.cfg.KeepBytes
}

// over tells whether no lease can be valid any more.
func over(until int64, now time.Time) bool { return now.Sub(time.UnixMilli(until)) > afterLease }

// mayGo tells whether every invocation in a segment is over, with what later
// segments say of it.
func (l *Ledger) mayGo(x *snapshot.Index, now time.Time) bool {
	for h := range x.Scopes {
		if s, ok := l.views.scopes[h]; ok && !over(s.until, now) {
			return false
		}
	}
	return true
}

// rotate ends the active segment and begins the next. The one step that counts is
// the rename of the new file: before it nothing has happened, after it Open goes on
// with what is left to do. spec: LEDGER-28, LEDGER-29.
func (l *Ledger) rotate(p *pruning) (err error) {
	defer func() {
		if err != nil {
			l.mu.Lock()
			l.views.closing = nil
			l.mu.Unlock()
		}
	}()
	next, payload, err := l.prepare(p)
	if err != nil {
		return err
	}
	frame := segment.AppendFrame(nil, payload, next.First, 0)
	if there, err := l.dir.AddSegment(next.First, frame); err != nil {
		if there {
			return fmt.Errorf("%w: begin a segment: %w", ErrFailed, err)
		}
		return err
	}
	f, err := l.cfg.openFile(l.cfg.Dir, next.First, os.O_RDWR)
	if err != nil {
		if drop := l.dir.DropSegment(next.First); drop != nil {
			return fmt.Errorf("%w: begin a segment: %w", ErrFailed, errors.Join(err, drop))
		}
		return err
	}
	was := l.log
	at := sealed{first: was.head.First, base: int64(was.head.Base), until: was.index.Until, high: was.index.High}
	l.log = &log{
		f: f, head: next, size: int64(len(frame)), synced: int64(len(frame)), tree: was.tree, signed: next.First,
		reserved: was.reserved, full: was.full, spent: was.spent, index: snapshot.New(next.First), closedTree: was.closedTree, sealed: append(slices.Clone(was.sealed), at),
	}
	l.log.tree.Add(payload)
	l.log.index.Seen(record.Time(payload))
	if p != nil {
		_, l.log.closedTree = chain.AppendClosed(p.closing, 0, was.closedTree)
		l.log.sealed = l.log.sealed[len(p.gone):]
	}
	l.files.mu.Lock()
	l.files.active, l.files.base, l.files.sealed = f, int64(next.Base), l.log.sealed
	l.files.mu.Unlock()
	if err := was.f.Close(); err != nil { // it was synced
		return fmt.Errorf("%w: end a segment: %w", ErrFailed, err)
	}
	if p != nil {
		l.forget(p)
		_ = l.dir.RemoveBefore(p.kept) // or Open does
	}
	return nil
}

// prepare makes all durable that the next segment stands on, and returns its first
// record.
func (l *Ledger) prepare(p *pruning) (next record.Segment, payload []byte, err error) {
	g := l.log
	if g.synced < g.size {
		if err := g.f.Datasync(); err != nil {
			return next, nil, fmt.Errorf("%w: sync: %w", ErrFailed, err)
		}
		g.synced = g.size
	}
	point, err := segment.SignCheckpoint(l.id, &g.tree, l.keys.Signer)
	if err == nil {
		err = l.dir.WriteCheckpoint(point)
	}
	if err != nil {
		return next, nil, err
	}
	g.signed = g.tree.Size()
	next = record.Segment{
		ID: l.id, Birth: l.birth, First: g.tree.Size(), VerifierKey: l.keys.VerifierKey,
		Base: g.head.Base + uint64(g.size), Edge: g.tree.Edge(), Point: point, Kept: g.head.Kept, Closed: g.head.Closed,
	}
	g.index.Seal(next.First-g.head.First, g.size, g.tree.Root())
	if b, err := g.index.Encode(l.id, &l.keys); err == nil {
		_ = l.dir.WriteSnapshot(g.head.First, b) // a cache
	}
	if p != nil {
		next.Kept = p.kept
		if next.Closed, err = l.closeAll(p); err != nil {
			return next, nil, err
		}
	}
	return next, next.Encode(l.now()), nil
}

// closeAll makes the hashes durable of the invocations that a pruning closes.
func (l *Ledger) closeAll(p *pruning) (record.Closed, error) {
	c := l.log.head.Closed
	if len(p.closing) == 0 {
		return c, nil
	}
	frames, tree := chain.AppendClosed(p.closing, int64(c.Bytes), l.log.closedTree)
	if err := l.dir.AppendClosed(int64(c.Bytes), frames); err != nil {
		return c, err
	}
	return record.Closed{
		Records: tree.Size(), Bytes: c.Bytes + uint64(len(frames)),
		Count: c.Count + uint64(len(p.closing)), Root: tree.Root(),
	}, nil
}

// forget takes what was pruned out of the views.
func (l *Ledger) forget(p *pruning) {
	all := chain.Merge(l.views.closed, p.closing)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.views.closed, l.views.closing = all, nil
	breathe := func(n int) {
		if n%forgetAtOnce == 0 {
			l.mu.Unlock()
			l.mu.Lock()
		}
	}
	for i, h := range p.closing {
		delete(l.views.scopes, h)
		breathe(i)
	}
	for _, x := range p.gone {
		for i, s := range x.Starts {
			delete(l.views.places, s.Hash)
			breathe(i)
		}
		for h, n := range x.Leases {
			if l.views.operations[h] -= n; l.views.operations[h] == 0 {
				delete(l.views.operations, h)
			}
		}
	}
}
