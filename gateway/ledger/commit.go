package ledger

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/lendcli/lend/gateway/ledger/folder"
	"github.com/lendcli/lend/gateway/ledger/record"
	"github.com/lendcli/lend/gateway/ledger/segment"
	"github.com/lendcli/lend/gateway/ledger/snapshot"
	"github.com/lendcli/lend/localhost/failpoint"
)

const (
	// maxWaiting bounds the bytes of refusals and events that wait for a leader.
	maxWaiting = 1 << 20
	// maxGroup is when a group takes no further start. spec: LEDGER-5.
	maxGroup = 4 << 20
	// maxUnsynced is when ends and events are made durable without a start.
	maxUnsynced = 256 << 10
	// checkpointEvery is the number of records between signed checkpoints.
	checkpointEvery = 4096
)

// Bounds of the events that a full disk holds up: what of the reserve is theirs, so
// that they take nothing that ends need, and what waits in memory beyond that.
const (
	maxEventsInReserve     = 64
	maxEventBytesInReserve = 64 << 10
	maxHeld                = 256
	maxHeldBytes           = 256 << 10
)

// entry is one record on its way into the file.
type entry struct {
	payload []byte
	op      *operation // nil: a refusal or an event
	start   bool
	event   bool
	lost    dropped // what is missing without it; of refusals and events
	err     error   // why it is not in the file; set before the group is done
}

// dropped counts what did not fit, so that the sum over all records still is right.
type dropped struct{ records, refusals uint64 }

func (d *dropped) add(more dropped) {
	d.records += more.records
	d.refusals += more.refusals
}

// entry returns the record that says so.
func (d dropped) entry(now time.Time) *entry {
	facts := map[string]string{"records": strconv.FormatUint(d.records, 10), "refusals": strconv.FormatUint(d.refusals, 10)}
	return &entry{payload: Event{Name: "ledger.dropped", Facts: facts}.Encode(now), lost: d}
}

// amount counts events.
type amount struct{ records, bytes int }

func (a *amount) add(en *entry) {
	a.records++
	a.bytes += int(segment.FrameSize(len(en.payload)))
}

// group is what the next leader writes in one go. Ledger.mu guards it until a
// leader has taken it.
type group struct {
	entries []*entry
	bytes   int
	durable bool // somebody waits for it on disk
	sign    bool // … and for a checkpoint
	probe   bool // … and whether there is room again
	waiters int
	err     error         // for all; set before done is closed
	done    chan struct{} // closed when the group is written
	lead    chan struct{} // one token: this group's turn, led by who takes it
}

// log is the active segment, as its one writer sees it. Only the leader touches it.
// Offsets are those of the file.
type log struct {
	f        folder.File
	head     record.Segment
	size     int64 // of what was written
	synced   int64 // of what is durable
	tree     segment.Tree
	signed   uint64 // records covered by the newest checkpoint
	reserved bool   // the reserve is there
	full     bool   // there was no room, and it is not known that there is
	spent    amount // events in the room of the reserve

	index      *snapshot.Index // of the records in the file
	sealed     []sealed        // the segments before, oldest first
	closedTree segment.Tree    // over the file of closed invocations
	retryAt    int64           // size at which a rotation that failed is tried again
}

// wish says what a caller of commit waits for.
type wish uint8

const (
	written wish = iota // by whoever leads; refusals and events do not wait for it
	probed              // room was looked for
	durable
	signed
	final // signed, and the last that is ever written
)

// commit hands over a record, or nil, and waits for what w says; then everything
// handed over before has that as well. Whoever finds no leader leads: it writes its
// group, and then passes the turn to somebody who waits for the next.
func (l *Ledger) commit(en *entry, w wish) error {
	l.mu.Lock()
	if err := l.refused(en); err != nil {
		l.mu.Unlock()
		return err
	}
	g := l.join(en, w)
	l.closed = l.closed || w == final
	switch {
	case !l.busy:
		l.busy = true
		l.mu.Unlock()
	case w == written && (en == nil || en.op == nil):
		l.mu.Unlock() // the leader will find it; an end waits, as its caller is told next
		return nil
	default:
		g.waiters++
		l.mu.Unlock()
		select {
		case <-g.done:
			return g.result(en)
		case <-g.lead:
		}
	}
	l.lead()
	return g.result(en)
}

// refused tells why nothing more is taken. It waits while the next group is full.
// l.mu is held.
func (l *Ledger) refused(en *entry) error {
	for l.next != nil && l.next.bytes >= maxGroup && en != nil && en.start {
		g := l.next
		l.mu.Unlock()
		<-g.done // there is a leader, or somebody who will be
		l.mu.Lock()
	}
	err := l.err
	if l.closed {
		err = os.ErrClosed
	}
	if err != nil && en != nil && en.start {
		l.views.drop(en.op)
	}
	return err
}

// join adds to the next group. l.mu is held.
func (l *Ledger) join(en *entry, w wish) *group {
	if l.next == nil {
		l.next = &group{done: make(chan struct{}), lead: make(chan struct{}, 1)}
	}
	g := l.next
	if en != nil {
		g.entries = append(g.entries, en)
		g.bytes += len(en.payload)
	}
	g.durable = g.durable || w >= durable
	g.sign = g.sign || w >= signed
	g.probe = g.probe || w == probed || w == final
	return g
}

func (g *group) result(en *entry) error {
	if en != nil && en.err != nil {
		return en.err
	}
	return g.err
}

// lead writes groups until nobody is waiting, or somebody else can go on.
func (l *Ledger) lead() {
	for more := true; more; {
		failed := l.rotateIfDue()
		g, err := l.takeNext()
		if err == nil {
			err = failed
		}
		base, index := l.log.size, l.log.tree.Size()
		var kept []*entry
		if err == nil {
			kept, err = l.write(g)
		}
		g.err = err
		more = l.publish(g, kept, base, index)
	}
}

// takeNext takes the group that is next, behind the events that were held up before,
// with a record of what was dropped.
func (l *Ledger) takeNext() (*group, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	g := l.next
	l.next, l.waiting = nil, 0
	g.entries = append(l.held, g.entries...)
	l.held, l.heldBytes = nil, 0
	if l.dropped.records > 0 {
		g.entries = append(g.entries, l.dropped.entry(l.now()))
		l.dropped = dropped{}
	}
	return g, l.err
}

// publish puts what was written into the views and lets everybody go who waits
// for it. It tells whether the leader has to go on.
func (l *Ledger) publish(g *group, kept []*entry, at int64, index uint64) (more bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = g.err
	}
	for _, en := range kept {
		l.enter(en, at, index)
		l.log.index.Seen(record.Time(en.payload))
		at += segment.FrameSize(len(en.payload))
		index++
	}
	for _, en := range g.entries {
		switch {
		case en.start && en.op.phase == phaseStarting:
			l.views.drop(en.op)
		case en.op == nil && en.err != nil:
			l.holdUp(en)
		}
	}
	l.full = l.log.full
	l.size = index
	if now := l.now(); now.After(l.high) {
		l.high = now
	}
	close(g.done)
	switch next := l.next; {
	case next == nil:
		l.busy = false
		return false
	case next.waiters > 0:
		next.lead <- struct{}{}
		return false
	default:
		return true
	}
}

// holdUp keeps an event for the next group, within bounds, and counts what is
// dropped. l.mu is held.
func (l *Ledger) holdUp(en *entry) {
	if !en.event || len(l.held) >= maxHeld || l.heldBytes+len(en.payload) > maxHeldBytes {
		l.dropped.add(en.lost)
		return
	}
	l.held = append(l.held, &entry{payload: en.payload, event: true, lost: en.lost}) // somebody may still read en
	l.heldBytes += len(en.payload)
}

// write puts a group into the file and makes it durable if it has to be. It
// returns the entries that are in the file. spec: LEDGER-21 to LEDGER-25.
func (l *Ledger) write(g *group) (kept []*entry, err error) {
	if g.probe && l.log.full {
		l.findRoom()
	}
	if kept, err = l.admit(g.entries); err != nil {
		return nil, err
	}
	err = l.append(kept)
	if folder.NoSpace(err) {
		kept, err = l.writeFull(kept)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFailed, err)
	}
	l.account(kept)
	hit(kept, "written")
	if g.durable || l.log.size-l.log.synced > maxUnsynced {
		if err := l.log.f.Datasync(); err != nil {
			return nil, fmt.Errorf("%w: sync: %w", ErrFailed, err)
		}
		l.log.synced = l.log.size
		hit(kept, "synced")
		return kept, l.sign(g.sign)
	}
	return kept, nil
}

// hit comes to the points of what a group holds.
func hit(entries []*entry, what string) {
	for _, en := range entries {
		switch {
		case en.start:
			failpoint.Hit("start-" + what)
		case en.op != nil:
			failpoint.Hit("end-" + what)
		}
	}
}

// account notes what was written: a start says that there is room, and an event
// without the reserve is in its room.
func (l *Ledger) account(kept []*entry) {
	for _, en := range kept {
		switch {
		case en.start:
			l.log.full = false
		case en.event && !l.log.reserved:
			l.log.spent.add(en)
		}
	}
}

// findRoom looks for the room of the reserve and of a large record besides, so that
// what says that it goes on does not itself use up the room for it. Less is left to
// others: a lockdown needs some, too.
func (l *Ledger) findRoom() {
	if l.dir.TryRoom(l.log.reserved) == nil && (l.log.reserved || l.takeReserve()) {
		l.log.full = false
	}
}

func (l *Ledger) takeReserve() bool {
	l.log.reserved = l.dir.TakeReserve() == nil
	if l.log.reserved {
		l.log.spent = amount{}
	} else {
		l.log.full = true
	}
	return l.log.reserved
}

// admit refuses starts for whose ends there would be no room, and keeps what is
// left of the reserve for ends and some events.
func (l *Ledger) admit(entries []*entry) ([]*entry, error) {
	starts := slices.ContainsFunc(entries, func(en *entry) bool { return en.start })
	if starts && !l.log.f.Linked() {
		return nil, fmt.Errorf("%w: its file was removed or replaced", ErrFailed)
	}
	if starts && !l.log.reserved {
		l.takeReserve()
	}
	if !l.log.reserved {
		return l.squeeze(entries), nil
	}
	return entries, nil
}

func notEnd(en *entry) bool { return en.start || en.op == nil }

// squeeze returns the ends, and the events that still have room in the reserve: none
// behind one that has not, so that they stay in their order.
func (l *Ledger) squeeze(entries []*entry) []*entry {
	spent := l.log.spent
	return without(entries, func(en *entry) bool {
		if !en.event {
			return notEnd(en)
		}
		spent.add(en)
		return spent.records > maxEventsInReserve || spent.bytes > maxEventBytesInReserve
	})
}

// writeFull is for a full disk: ends and some events, in the room that the reserve
// kept.
func (l *Ledger) writeFull(entries []*entry) ([]*entry, error) {
	l.log.full = true
	rest := l.squeeze(entries)
	if l.log.reserved {
		l.log.reserved = false
		if err := l.dir.GiveReserve(); err != nil {
			return nil, err
		}
	}
	err := l.append(rest)
	if folder.NoSpace(err) { // others have taken the room
		rest = without(rest, notEnd)
		err = l.append(rest)
	}
	return rest, err
}

// without returns the entries that do not match; those that do get ErrFull.
func without(entries []*entry, match func(*entry) bool) []*entry {
	var rest []*entry
	for _, en := range entries {
		if match(en) {
			en.err = ErrFull
		} else {
			rest = append(rest, en)
		}
	}
	return rest
}

// append writes frames at the end of the file, all or none.
func (l *Ledger) append(entries []*entry) error {
	n := 0
	for _, en := range entries {
		n += int(segment.FrameSize(len(en.payload)))
	}
	if n == 0 {
		return nil
	}
	b, t := make([]byte, 0, n), l.log.tree.Clone()
	for _, en := range entries {
		b = segment.AppendFrame(b, en.payload, t.Size(), l.log.synced)
		t.Add(en.payload)
	}
	if _, err := l.log.f.WriteAt(b, l.log.size); err != nil {
		if cut := l.log.f.Truncate(l.log.size); cut != nil {
			return fmt.Errorf("cut off a failed write: %w", errors.New(cut.Error())) // not for a full disk
		}
		return fmt.Errorf("write: %w", err)
	}
	l.log.size += int64(len(b))
	l.log.tree = t
	return nil
}

// sign replaces the newest checkpoint if it is due, or asked for. It covers
// durable records only. One that was not asked for and cannot be written is left
// for the next time: the older one still holds.
func (l *Ledger) sign(asked bool) error {
	since := l.log.tree.Size() - l.log.signed
	if since == 0 || !asked && since < checkpointEvery {
		return nil
	}
	point, err := segment.SignCheckpoint(l.id, &l.log.tree, l.keys.Signer)
	if err == nil {
		err = l.dir.WriteCheckpoint(point)
	}
	if err == nil {
		l.log.signed = l.log.tree.Size()
	}
	if asked && err != nil && !folder.NoSpace(err) {
		return fmt.Errorf("%w: checkpoint: %w", ErrFailed, err)
	}
	return nil
}

// note records something that nobody waits for, and that sums up refused refusals.
func (l *Ledger) note(en *entry) error {
	payload := en.payload
	l.mu.Lock()
	full := l.waiting+len(payload) > maxWaiting
	if full {
		l.dropped.add(en.lost)
	} else {
		l.waiting += len(payload)
	}
	l.mu.Unlock()
	if full {
		return nil
	}
	if err := l.commit(en, written); !errors.Is(err, ErrFull) {
		return err
	}
	return nil // publish holds it up, or counts it
}

// Checkpoint makes everything durable that was recorded before and signs size and
// root of the whole ledger, in C2SP form. Keep it elsewhere: Verify finds any
// change of what it covers. spec: LEDGER-9, LEDGER-10.
func (l *Ledger) Checkpoint() ([]byte, error) {
	err := l.commit(nil, signed)
	if err != nil {
		return nil, fmt.Errorf("sign checkpoint: %w", err)
	}
	return folder.ReadCheckpoint(l.cfg.Dir)
}
