package audit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/mod/sumdb/note"

	"github.com/lendcli/lend/gateway/ledger/chain"
	"github.com/lendcli/lend/gateway/ledger/segment"
	"github.com/lendcli/lend/protocol/name"
)

// Place is where checkpoints are kept besides the ledger.
type Place struct {
	// Name is for people: printable ASCII, without secrets.
	Name string
	// Keep keeps a signed checkpoint. It is called by one goroutine at a time, and
	// should return when ctx is done.
	Keep func(ctx context.Context, signed []byte) error
}

// Errors of a file of checkpoints that does not take a new one. The old one stays,
// since it may be all that proves what happened.
var (
	// ErrOtherLedger: the file has a checkpoint of another ledger, or of another key.
	ErrOtherLedger = errors.New("another ledger's checkpoint is kept there")
	// ErrRolledBack: the checkpoint in the file covers more than the new one, or
	// other records than those that the ledger has.
	ErrRolledBack = chain.ErrRolledBack
)

// File is a Place that keeps the newest checkpoint of the ledger in the directory
// ledger in a file, on another disk or machine at best, and key, the ledger's
// verification key, in the file with .key behind its name. Both are replaced whole and
// made durable. What is there already is only replaced once the records of the ledger
// show that the new checkpoint is of a later state than the one that is there: else
// the error is ErrOtherLedger or ErrRolledBack, or says why that cannot be told, and
// the file stays. Growth is read once: each new checkpoint costs the records since the
// last one, the first of a process at most a segment more.
func File(path, key, ledger string) Place {
	past := &chain.Past{Dir: ledger}
	return Place{Name: "file " + name.Show(path), Keep: func(ctx context.Context, signed []byte) error {
		if err := keepFile(ctx, path, key, past, signed); err != nil {
			return fmt.Errorf("keep checkpoint: %w", err)
		}
		return nil
	}}
}

func keepFile(ctx context.Context, path, key string, past *chain.Past, signed []byte) error {
	verifier, err := note.NewVerifier(key)
	if err != nil {
		return err
	}
	next, err := segment.OpenCheckpoint(signed, verifier)
	if err != nil {
		return err
	}
	old, err := readSmall(path + keySuffix)
	if err == nil && strings.TrimSpace(string(old)) != key {
		return stays(path, ErrOtherLedger)
	}
	if errors.Is(err, os.ErrNotExist) {
		err = replace(path+keySuffix, []byte(key+"\n"))
	}
	if err != nil {
		return err
	}
	was, err := readSmall(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return replace(path, signed)
	case err != nil:
		return err
	}
	before, err := segment.OpenCheckpoint(was, verifier)
	if err != nil || before.ID != next.ID {
		return stays(path, ErrOtherLedger)
	}
	if err := past.Contains(ctx, before, next, verifier); err != nil {
		return stays(path, err)
	}
	return replace(path, signed)
}

// stays says what the owner can do about a file that is not replaced.
func stays(path string, err error) error {
	if !proof(err) {
		return err
	}
	return fmt.Errorf("%w (it stays as it is: run lend audit verify --checkpoint %s, then move it and its %s away or name another file)",
		err, name.Show(path), keySuffix)
}

// proof tells whether what is kept in a place may show that something is wrong, or
// cannot be compared any more: that does not pass by itself.
func proof(err error) bool {
	return errors.Is(err, ErrOtherLedger) || errors.Is(err, ErrRolledBack) || errors.Is(err, chain.ErrPruned) || errors.Is(err, segment.ErrCorrupt)
}

// replace writes a file whole or not at all, and durably.
func replace(path string, data []byte) error {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+".*") // 0600
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	if runtime.GOOS == "windows" {
		return nil // directories cannot be synced
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
