package audit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/lendcli/lend/gateway/ledger/chain"
	"github.com/lendcli/lend/gateway/ledger/folder"
	"github.com/lendcli/lend/gateway/ledger/record"
	"github.com/lendcli/lend/gateway/ledger/segment"
	"github.com/lendcli/lend/protocol/name"
)

// followEvery is how often Follow looks for more.
const followEvery = 200 * time.Millisecond

// Config says what a View shows.
type Config struct {
	// Dir is the directory of a ledger, in use or a copy.
	Dir string
	// Peers are the policy's names; nil means that peers have none.
	Peers map[name.Label]name.PeerID
	// Filter chooses among the records.
	Filter Filter
}

// View reads the records of one ledger. It is for one goroutine.
type View struct {
	dir    string
	names  map[string]string
	filter Filter
	at     chain.Cursor
	// running are the starts that were read and have no end yet, as far as they are
	// not older than what was read.
	running map[uint64]*subject
}

// New returns a View that stands before the oldest record. It reads nothing.
func New(c Config) *View {
	return &View{dir: c.Dir, names: namesOf(c.Peers), filter: c.Filter, running: map[uint64]*subject{}}
}

// errStop ends a walk; it is never returned.
var errStop = errors.New("enough")

// Newest returns the last n records that match, oldest first, at most MaxNewest, and
// moves the View behind the last record. It reads the newest segments, and only as
// many as it needs; more tells that older ones were not looked at, or left out. The
// error is segment.ErrCorrupt at a record that is not as it was written,
// os.ErrNotExist where there is no ledger, or of the operating system.
func (v *View) Newest(n int) (out []Record, more bool, err error) {
	n = min(max(n, 1), MaxNewest)
	firsts, err := folder.Segments(v.dir)
	if err != nil || len(firsts) == 0 {
		_, err = chain.Walk(v.dir, nil) // says so
		return nil, false, fmt.Errorf("read ledger: %w", err)
	}
	for i := len(firsts) - 1; i >= 0 && len(out) < n; i-- {
		page := page{View: v, most: n - len(out)}
		end, err := page.read(firsts, i)
		if errors.Is(err, os.ErrNotExist) && i < len(firsts)-1 {
			return out, false, nil // pruned meanwhile
		}
		if err != nil {
			return nil, false, fmt.Errorf("read ledger: %w", err)
		}
		if i == len(firsts)-1 {
			v.at, v.running = end, page.open
		}
		out, more = append(page.found, out...), page.more || i > 0
		if page.first.Before(v.filter.Since) {
			return out, page.more, nil
		}
	}
	return out, more, nil
}

// page is what Newest finds in one segment.
type page struct {
	*View
	most  int
	found []Record
	more  bool
	first time.Time
	open  map[uint64]*subject
}

// read reads one segment of those that there are.
func (p *page) read(firsts []uint64, i int) (chain.Cursor, error) {
	p.open = map[uint64]*subject{}
	older := resolver{dir: p.dir, firsts: firsts[:i]}
	end, _, err := chain.WalkFrom(p.dir, chain.Begin(firsts[i]), func(f segment.Frame) error {
		if i+1 < len(firsts) && f.Index >= firsts[i+1] {
			return errStop
		}
		r, err := p.show(f, p.open, &older)
		if err != nil {
			return err
		}
		if f.Index == firsts[i] {
			p.first = r.At
		}
		if !p.filter.match(&r) {
			return nil
		}
		if p.found = append(p.found, r); len(p.found) >= 2*p.most {
			p.found, p.more = slices.Delete(p.found, 0, len(p.found)-p.most), true
		}
		return nil
	})
	if over := len(p.found) - p.most; over > 0 {
		p.found, p.more = slices.Delete(p.found, 0, over), true
	}
	if errors.Is(err, errStop) {
		err = nil
	}
	return end, err
}

// Rest calls fn for each record that matches, from where the View stands to the last
// one that is there, and moves it behind that. The error is fn's, or one of Newest.
// The Record is fn's only during the call.
func (v *View) Rest(fn func(*Record) error) error {
	firsts, err := folder.Segments(v.dir)
	if err != nil {
		return fmt.Errorf("read ledger: %w", err)
	}
	i, _ := slices.BinarySearch(firsts, v.at.First)
	older := resolver{dir: v.dir, firsts: firsts[:i]}
	end, _, err := chain.WalkFrom(v.dir, v.at, func(f segment.Frame) error {
		r, err := v.show(f, v.running, &older)
		if err != nil || !v.filter.match(&r) {
			return err
		}
		return fn(&r)
	})
	v.at = end
	if err != nil {
		return fmt.Errorf("read ledger: %w", err)
	}
	return nil
}

// Follow is Rest again and again, until ctx is done: then it returns nil.
func (v *View) Follow(ctx context.Context, fn func(*Record) error) error {
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	for {
		if err := v.Rest(fn); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// show makes a Record of a frame. An end is shown with what its start says: open has
// the starts of this walk, and older finds those before it.
func (v *View) show(f segment.Frame, open map[uint64]*subject, older *resolver) (Record, error) {
	en, err := record.Decode(f.Index, f.Payload)
	if err != nil {
		return Record{}, &segment.DamageError{Offset: f.Offset, Index: f.Index, What: err.Error()}
	}
	r := Record{SchemaVersion: SchemaVersion, Index: f.Index, At: en.At, Kind: KindSegment}
	switch {
	case en.Start != nil:
		s := subjectOf(en.Start)
		open[f.Index] = s
		s.fill(&r, v.names)
		r.start(en.Start)
	case en.End != nil:
		s, ok := open[en.Of]
		if !ok {
			s = older.find(en.Of)
		}
		delete(open, en.Of)
		s.fill(&r, v.names)
		r.end(en.End, en.Of)
	case en.Refusal != nil:
		r.refusal(en.Refusal, v.names)
	case en.Event != nil:
		r.Kind, r.Event, r.Facts = KindEvent, shown(en.Event.Name), shownFacts(en.Event.Facts)
	}
	return r, nil
}

// resolver finds the starts of ends that are in a later segment.
type resolver struct {
	dir    string
	firsts []uint64 // of the segments before
	read   map[uint64]map[uint64]*subject
}

// find reads the segment of a start, once; nil if it was pruned or cannot be read.
func (o *resolver) find(start uint64) *subject {
	i, ok := slices.BinarySearch(o.firsts, start)
	if !ok {
		i--
	}
	if i < 0 {
		return nil
	}
	first := o.firsts[i]
	if o.read[first] == nil {
		if o.read == nil {
			o.read = map[uint64]map[uint64]*subject{}
		}
		o.read[first] = o.unended(i)
	}
	return o.read[first][start]
}

// unended returns the starts of a segment whose end is not in it: few.
func (o *resolver) unended(i int) map[uint64]*subject {
	out := map[uint64]*subject{}
	_, _, _ = chain.WalkFrom(o.dir, chain.Begin(o.firsts[i]), func(f segment.Frame) error {
		if f.Offset == 0 && f.Index != o.firsts[i] {
			return errStop // the next segment
		}
		switch f.Payload[0] {
		case record.KindStart, record.KindDelegated:
			if s, err := record.DecodeStart(f.Payload); err == nil {
				out[f.Index] = subjectOf(s)
			}
		case record.KindEnd, record.KindNotStarted, record.KindUnknown:
			if of, ok := record.EndOf(f.Payload); ok {
				delete(out, of)
			}
		}
		return nil
	}) // what cannot be read is not known
	return out
}
