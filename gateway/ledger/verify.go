package ledger

import (
	"fmt"

	"github.com/lendcli/lend/gateway/ledger/chain"
	"github.com/lendcli/lend/gateway/ledger/record"
	"github.com/lendcli/lend/gateway/ledger/segment"
)

// Walk calls fn for each record that is kept of the ledger in dir, in order, over all
// segments, without taking the directory: it may be in use, or a copy without keys.
// It ends at a torn tail, or at fn's first error, which it returns. The error is
// ErrCorrupt at the first record that is not as it was written, and
// os.ErrNotExist if a segment is pruned before its turn.
func Walk(dir string, fn func(Entry) error) error {
	_, err := chain.Walk(dir, func(f segment.Frame) error {
		en, err := record.Decode(f.Index, f.Payload)
		if err != nil {
			return &segment.DamageError{Offset: f.Offset, Index: f.Index, What: err.Error()}
		}
		return fn(en)
	})
	if err != nil {
		return fmt.Errorf("read ledger: %w", err)
	}
	return nil
}

// Walk calls fn for each record that is in the file by now, as the function Walk
// does.
func (l *Ledger) Walk(fn func(Entry) error) error { return Walk(l.cfg.Dir, fn) }

// Report is what Verify found.
type Report = chain.Report

// Verify checks a ledger, or a copy of its directory, offline: each record that is
// kept, over all segments, the order of starts and ends, what each segment says of
// the records before it, the closed invocations, the checkpoint in the directory if
// there is one, and those that were kept elsewhere. The error is ErrCorrupt if anything differs; it
// says what, and from which record on. spec: LEDGER-26, LEDGER-27, LEDGER-29.
func Verify(dir string, kept ...[]byte) (Report, error) {
	all := make([]chain.Kept, len(kept))
	for i, b := range kept {
		all[i] = chain.Kept{Name: fmt.Sprintf("checkpoint %d", i), Note: b}
	}
	r, err := chain.Verify(dir, all)
	if err != nil {
		return r, fmt.Errorf("verify ledger: %w", err)
	}
	return r, nil
}
