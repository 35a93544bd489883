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
	// other records.
	ErrRolledBack = errors.New("the checkpoint that is kept there is not of an earlier state of this ledger: was the ledger set back?")
)

// File is a Place that keeps the newest checkpoint in a file, on another disk or
// machine at best, and key, the ledger's verification key, in the file with .key
// behind its name. Both are replaced whole and made durable. What is there already is
// only replaced if the new checkpoint is a later one of the same ledger: else the
// error is ErrOtherLedger or ErrRolledBack.
func File(path, key string) Place {
	return Place{Name: "file " + name.Show(path), Keep: func(_ context.Context, signed []byte) error {
		if err := keepFile(path, key, signed); err != nil {
			return fmt.Errorf("keep checkpoint: %w", err)
		}
		return nil
	}}
}

func keepFile(path, key string, signed []byte) error {
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
		return ErrOtherLedger
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
	switch {
	case err != nil || before.ID != next.ID:
		return ErrOtherLedger
	case before.Size > next.Size, before.Size == next.Size && before.Root != next.Root:
		return ErrRolledBack
	}
	return replace(path, signed)
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
