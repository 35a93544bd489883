package chain

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/mod/sumdb/note"

	"github.com/lendcli/lend/gateway/ledger/folder"
	"github.com/lendcli/lend/gateway/ledger/segment"
)

// Past shows that one checkpoint of a ledger is of a later state than another: it reads
// the records from the older one to the newer one, after at most a segment before it,
// and goes on where it was the next time. It is used by one goroutine at a time.
type Past struct {
	Dir string // of the ledger, in use or a copy

	from   segment.Checkpoint // that is in the tree; the zero value: none yet
	tree   segment.Tree       // over the records before at
	at     Cursor
	opened bool // tree and at are of this directory
}

// What a Past says of an older checkpoint.
var (
	// ErrRolledBack: it covers more than the newer one, or other records.
	ErrRolledBack = errors.New("the checkpoint that is kept there is not of an earlier state of this ledger: was the ledger set back?")
	// ErrPruned: what could tell whether it is of this ledger's past is gone.
	ErrPruned = errors.New("the records up to the checkpoint that is kept there were pruned: nothing is left that it could be compared with")
)

// errEnough ends a walk.
var errEnough = errors.New("enough")

// Contains returns nil if the ledger has before among its past states and next is
// the state that its records make: before is not later then, and of the same records.
// The error is ErrRolledBack if that is not so, ErrPruned if nothing is left to tell,
// segment.ErrCorrupt if the files are not what was signed, or else says why it cannot be
// told now, such as the cause of ctx.
func (h *Past) Contains(ctx context.Context, before, next segment.Checkpoint, verifier note.Verifier) error {
	if before.ID != next.ID || before.Size > next.Size {
		return ErrRolledBack
	}
	if before.Size == next.Size {
		if before.Root != next.Root {
			return ErrRolledBack
		}
		return nil
	}
	err := h.follow(ctx, before, next, verifier)
	if errors.Is(err, os.ErrNotExist) { // pruned while it was read, or since the last time
		h.opened = false
		err = h.follow(ctx, before, next, verifier)
	}
	if err != nil {
		h.opened = h.opened && ctx.Err() != nil // else from the start again, the next time
	}
	return err
}

// follow walks from what it has, or else the newest segment that begins before the
// older checkpoint, to the newer one.
func (h *Past) follow(ctx context.Context, before, next segment.Checkpoint, verifier note.Verifier) error {
	switch {
	case h.opened && h.from == before && h.tree.Size() <= next.Size:
	case h.opened && h.tree.Size() == before.Size && h.tree.Root() == before.Root:
		h.from = before
	default:
		if err := h.begin(before, verifier); err != nil {
			return err
		}
	}
	if h.from != before {
		if err := h.walk(ctx, before.Size); err != nil {
			return err
		}
		if h.tree.Root() != before.Root {
			return ErrRolledBack
		}
		h.from = before
	}
	if err := h.walk(ctx, next.Size); err != nil {
		return err
	}
	if h.tree.Root() != next.Root {
		return fmt.Errorf("compare with the ledger: %w", &segment.DamageError{Index: before.Size, What: "its files are not what was signed"})
	}
	return nil
}

// begin goes to the newest segment that begins at or before a checkpoint.
func (h *Past) begin(before segment.Checkpoint, verifier note.Verifier) error {
	h.opened, h.from = false, segment.Checkpoint{}
	firsts, err := folder.Segments(h.Dir)
	if err != nil {
		return fmt.Errorf("compare with the ledger: %w", err)
	}
	for len(firsts) > 0 && firsts[len(firsts)-1] > before.Size {
		firsts = firsts[:len(firsts)-1]
	}
	if len(firsts) == 0 {
		return ErrPruned
	}
	first := firsts[len(firsts)-1]
	head, err := ReadHead(h.Dir, first)
	if err == nil {
		err = Fits(&head.Segment, verifier)
	}
	if err != nil {
		return fmt.Errorf("compare with the ledger: %w", err)
	}
	h.tree, _ = segment.Resume(first, head.Segment.Edge)
	if first == 0 {
		h.tree = segment.Tree{}
	}
	h.at, h.opened = Begin(first), true
	return nil
}

// walk adds the records up to a size.
func (h *Past) walk(ctx context.Context, size uint64) error {
	if h.tree.Size() >= size {
		return nil
	}
	var last *Cursor // behind the last one, once it is there
	end, _, err := WalkFrom(h.Dir, h.at, func(f segment.Frame) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if f.Index != h.tree.Size() { // it was before the oldest one, which was pruned
			return fmt.Errorf("record %d: %w", h.tree.Size(), os.ErrNotExist)
		}
		h.tree.Add(f.Payload)
		if h.tree.Size() == size {
			last = &Cursor{Offset: f.Offset + segment.FrameSize(len(f.Payload)), Next: size}
			return errEnough
		}
		return nil
	})
	h.at = end
	switch {
	case last != nil:
		h.at.Offset, h.at.Next = last.Offset, last.Next
		return nil
	case err == nil:
		err = &segment.DamageError{Index: h.tree.Size(), What: "records that were signed are not in its files"}
	}
	return fmt.Errorf("compare with the ledger: %w", err)
}
