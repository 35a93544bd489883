package audit

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/lendcli/lend/gateway/ledger/chain"
	"github.com/lendcli/lend/gateway/ledger/folder"
	"github.com/lendcli/lend/gateway/ledger/segment"
	"github.com/lendcli/lend/protocol/name"
)

// Kept is what somebody kept outside of the ledger: a checkpoint, the key, or both.
type Kept = chain.Kept

// Verdict is what Verify found.
type Verdict struct {
	SchemaVersion int    `json:"schemaVersion"`
	OK            bool   `json:"ok"`
	Directory     string `json:"directory"`
	// Problem says what is wrong, and Index which record is the wrong one, or the
	// first of those that may be.
	Problem string  `json:"problem,omitempty"`
	Index   *uint64 `json:"index,omitempty"`

	Ledger string    `json:"ledger,omitempty"` // its ID
	Key    string    `json:"key,omitempty"`    // that its checkpoints are signed with
	Begun  time.Time `json:"begun,omitzero"`

	// From is the first record that is kept, Records how many there ever were, and
	// Root of all of them. Covered is the size of the newest checkpoint that fits,
	// KeptElsewhere that of the newest one from outside, and NotCovered how many
	// records came after that: these alone could have been cut off or changed by who
	// has the ledger's keys.
	From          uint64 `json:"from"`
	Records       uint64 `json:"records"`
	Root          string `json:"root,omitempty"`
	Segments      int    `json:"segments"`
	Covered       uint64 `json:"covered"`
	KeptElsewhere uint64 `json:"keptElsewhere"`
	NotCovered    uint64 `json:"notCovered"`
	// Older counts checkpoints of pruned records only, TornTail the bytes behind the
	// last whole record, Closed the invocations whose records were pruned.
	Older    int    `json:"older,omitempty"`
	TornTail int64  `json:"tornTail,omitempty"`
	Closed   uint64 `json:"closed,omitempty"`

	Starts     uint64 `json:"starts"`
	Ends       uint64 `json:"ends"`
	NotStarted uint64 `json:"notStarted"`
	Unknown    uint64 `json:"unknown"`
	Running    int    `json:"running"`
	Refusals   uint64 `json:"refusals"` // records; each may sum up several
	Events     uint64 `json:"events"`
}

// Verify checks the ledger in dir, in use or a copy, by itself and against what was
// kept elsewhere. It changes nothing and needs no keys. An error means that the
// directory could not be read: os.ErrNotExist if there is no ledger.
func Verify(dir string, kept []Kept) (Verdict, error) {
	if len(kept) > MaxCheckpoints {
		return Verdict{}, fmt.Errorf("verify ledger: more than %d checkpoints", MaxCheckpoints)
	}
	r, err := chain.Verify(dir, kept)
	v := Verdict{SchemaVersion: SchemaVersion, OK: err == nil, Directory: dir}
	if err != nil && !errors.Is(err, segment.ErrCorrupt) {
		return v, fmt.Errorf("verify ledger: %w", err)
	}
	if err != nil {
		v.Problem = escaped(err.Error())
		var damage *segment.DamageError
		if errors.As(err, &damage) {
			v.Problem, v.Index = escaped(damage.What), &damage.Index
		}
	}
	v.From, v.Records, v.Segments, v.Covered, v.KeptElsewhere = r.From, r.Records, r.Segments, r.Covered, r.Kept
	v.NotCovered = r.Records - max(r.Kept, r.From)
	v.Older, v.TornTail, v.Closed = r.Older, r.TornTail, r.Closed
	v.Starts, v.Ends, v.NotStarted, v.Unknown = r.Starts, r.Ends, r.NotStarted, r.Unknown
	v.Running, v.Refusals, v.Events = r.Running, r.Refusals, r.Events
	if r.Segments > 0 {
		v.Ledger, v.Key, v.Begun = hex.EncodeToString(r.ID[:]), escaped(r.VerifierKey), r.Birth
		v.Root = base64.StdEncoding.EncodeToString(r.Root[:])
	}
	return v, nil
}

// keySuffix is what a key's file has behind the name of the checkpoint's.
const keySuffix = ".key"

// ReadKept reads a checkpoint, and the key beside it (FILE.key) if there is one; of
// the directory of a ledger, those that it has.
func ReadKept(path string) (Kept, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return ownKept(path)
	}
	note, err := readSmall(path)
	if err != nil {
		return Kept{}, fmt.Errorf("read checkpoint: %w", err)
	}
	key, err := readSmall(path + keySuffix)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return Kept{}, fmt.Errorf("read the checkpoint's key: %w", err)
	}
	return Kept{Name: "checkpoint " + name.Show(path), Note: note, Key: strings.TrimSpace(string(key))}, nil
}

// ownKept reads what a ledger says of itself.
func ownKept(dir string) (Kept, error) {
	firsts, err := folder.Segments(dir)
	if err == nil && len(firsts) == 0 {
		err = fmt.Errorf("no ledger in %s: %w", name.Show(dir), os.ErrNotExist)
	}
	if err != nil {
		return Kept{}, fmt.Errorf("read checkpoint: %w", err)
	}
	head, err := chain.ReadHead(dir, firsts[len(firsts)-1])
	if err != nil {
		return Kept{}, fmt.Errorf("read the checkpoint's key: %w", err)
	}
	note, err := folder.ReadCheckpoint(dir)
	if err != nil {
		return Kept{}, fmt.Errorf("read checkpoint: %w", err)
	}
	return Kept{Name: "checkpoint of " + name.Show(dir), Note: note, Key: head.Segment.VerifierKey}, nil
}

// readSmall reads a file that is a checkpoint or a key, or else too long.
func readSmall(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular() || info.Size() > segment.MaxCheckpoint:
		return nil, fmt.Errorf("%s is not a checkpoint", name.Show(path))
	}
	return os.ReadFile(path)
}
