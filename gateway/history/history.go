package history

import (
	"slices"
	"sync"
	"time"

	"github.com/lendcli/lend/gateway/ledger"
	"github.com/lendcli/lend/protocol/name"
)

// Keep is how many operations a Recent remembers; MaxLast bounds what Last returns.
const (
	Keep    = 1024
	MaxLast = 10_000
)

// Operation is what the ledger has of one operation.
type Operation struct {
	ledger.Key
	Lease     [16]byte
	Connector name.ConnectorKey
	Version   name.Version
	Command   name.Command
	Started   time.Time
	// End is nil if there is none yet.
	End *ledger.End
}

// Walk calls a function for each record of a ledger, in order; (*ledger.Ledger).Walk
// is one.
type Walk func(func(ledger.Entry) error) error

// Last returns the newest operations that match, at most keep of them and MaxLast,
// in the order of their starts. more tells that older ones were left out. nil
// matches all. The error is Walk's.
func Last(walk Walk, keep int, match func(ledger.Key) bool) (ops []Operation, more bool, err error) {
	keep = min(keep, MaxLast)
	var order []uint64 // of the starts that are kept
	kept := map[uint64]*Operation{}
	err = walk(func(en ledger.Entry) error {
		switch {
		case en.Start != nil && (match == nil || match(en.Start.Key)):
			kept[en.Index] = of(en.Start)
			order = append(order, en.Index)
			if len(order) > keep {
				delete(kept, order[0])
				order, more = order[1:], true
			}
		case en.End != nil && kept[en.Of] != nil:
			kept[en.Of].End = en.End
		}
		return nil
	})
	if err != nil {
		return nil, false, err
	}
	for _, i := range order {
		ops = append(ops, *kept[i])
	}
	return ops, more, nil
}

func of(s *ledger.Start) *Operation {
	return &Operation{
		Key: s.Key, Lease: s.Lease, Connector: s.Connector, Version: s.Version, Command: s.Command, Started: s.At,
	}
}

// Recent remembers the last Keep operations that have ended. Its zero value is
// ready. Methods are safe for concurrent use.
type Recent struct {
	reading sync.Mutex // held while the ledger is read

	mu     sync.Mutex  // guards what follows
	before []Operation // what the ledger had at the first question
	more   bool
	read   bool
	ended  []Operation // since the process began
}

// Ended adds one that has ended. It does not block.
func (r *Recent) Ended(o Operation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended = append(r.ended, o); len(r.ended) > Keep {
		r.ended, r.more = slices.Delete(r.ended, 0, len(r.ended)-Keep), true
	}
}

// List returns the last operations that have ended, at most Keep, in the order of
// their starts; more tells that there are older ones. The first call reads the
// ledger; its error is walk's, and the next call tries again.
func (r *Recent) List(walk Walk) (ops []Operation, more bool, err error) {
	if err := r.load(walk); err != nil {
		return nil, false, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := make(map[ledger.Key]bool, len(r.ended))
	for _, o := range r.ended {
		seen[o.Key] = true
	}
	for _, o := range r.before {
		if o.End != nil && !seen[o.Key] {
			ops = append(ops, o)
		}
	}
	ops = append(ops, r.ended...)
	slices.SortStableFunc(ops, func(a, b Operation) int { return a.Started.Compare(b.Started) })
	if len(ops) > Keep {
		return ops[len(ops)-Keep:], true, nil
	}
	return ops, r.more, nil
}

func (r *Recent) load(walk Walk) error {
	r.reading.Lock()
	defer r.reading.Unlock()
	r.mu.Lock()
	read := r.read
	r.mu.Unlock()
	if read {
		return nil
	}
	before, more, err := Last(walk, Keep, nil)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.before, r.more, r.read = before, r.more || more, true
	return nil
}
