package ledger

import (
	"golang.org/x/mod/sumdb/note"

	"github.com/lendcli/lend/gateway/ledger/chain"
	"github.com/lendcli/lend/gateway/ledger/folder"
	"github.com/lendcli/lend/gateway/ledger/segment"
)

// survey reads the first record of every segment and what belongs to no segment,
// and ends a pruning that was interrupted. spec: LEDGER-16, LEDGER-28, LEDGER-30.
func (ld *loader) survey() error {
	verifier, err := note.NewVerifier(ld.keys.VerifierKey)
	if err != nil {
		return err
	}
	b, err := folder.ReadCheckpoint(ld.dir.Path)
	if err != nil {
		return err
	}
	if ld.point, err = segment.OpenCheckpoint(b, verifier); err != nil {
		return &segment.DamageError{What: err.Error()}
	}
	firsts, err := folder.Segments(ld.dir.Path)
	if err != nil {
		return err
	}
	if len(firsts) == 0 {
		return ErrLost
	}
	newest, err := chain.ReadHead(ld.dir.Path, firsts[len(firsts)-1])
	if err != nil {
		return err
	}
	if err := ld.fits(newest, verifier); err != nil {
		return err
	}
	if ld.point.Size < newest.Segment.First {
		return &segment.DamageError{Index: ld.point.Size, What: "the newest checkpoint is older than the newest segment"}
	}
	if kept := newest.Segment.Kept; firsts[0] < kept {
		if err := ld.dir.RemoveBefore(kept); err != nil {
			return err
		}
		if firsts, err = folder.Segments(ld.dir.Path); err != nil {
			return err
		}
	}
	if firsts[0] != newest.Segment.Kept {
		return &segment.DamageError{Index: newest.Segment.Kept, What: "its segment is gone"}
	}
	if ld.views.closed, ld.closedTree, err = chain.ReadClosed(ld.dir.Path, newest.Segment.Closed); err != nil {
		return err
	}
	return ld.readHeads(firsts, verifier)
}

func (ld *loader) readHeads(firsts []uint64, verifier note.Verifier) error {
	for _, first := range firsts {
		h, err := chain.ReadHead(ld.dir.Path, first)
		if err != nil {
			return err
		}
		if err := ld.fits(h, verifier); err != nil {
			return err
		}
		if n := len(ld.heads); n > 0 && h.Segment.Base < ld.heads[n-1].Segment.Base {
			return &segment.DamageError{Index: first, What: "its segment begins before the one before it"}
		}
		ld.heads = append(ld.heads, h)
	}
	ld.tree, _ = segment.Resume(firsts[0], ld.heads[0].Segment.Edge)
	return nil
}

// fits checks a segment against the keys, and what it says of the records before it
// against the checkpoint that it carries.
func (ld *loader) fits(h chain.Head, verifier note.Verifier) error {
	bad := func(what string) error { return &segment.DamageError{Index: h.Segment.First, What: what} }
	if h.Segment.VerifierKey != ld.keys.VerifierKey || h.Segment.ID != ld.point.ID {
		return bad("the first record does not fit the keys")
	}
	if err := chain.Fits(&h.Segment, verifier); err != nil {
		return bad(err.Error())
	}
	return nil
}
