package audit

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"

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
// directory could not be read, os.ErrNotExist if there is no ledger, or that what was
// kept is no checkpoint, or one with this ledger's key that was edited.
func Verify(dir string, kept []Kept) (Verdict, error) {
	if len(kept) > MaxCheckpoints {
		return Verdict{}, fmt.Errorf("verify ledger: more than %d checkpoints", MaxCheckpoints)
	}
	if err := checkAll(dir, kept); err != nil {
		return Verdict{}, fmt.Errorf("read what was kept: %w", err)
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

// checkAll opens the checkpoints of which the ledger's key is the only one known. One
// that another key signed is left to chain.Verify: the ledger may have been made anew.
func checkAll(dir string, kept []Kept) error {
	key := "" // chain.Verify says what is wrong with a ledger that does not tell
	if firsts, err := folder.Segments(dir); err == nil && len(firsts) > 0 {
		if head, err := chain.ReadHead(dir, firsts[0]); err == nil {
			key = head.Segment.VerifierKey
		}
	}
	for _, k := range kept {
		if k.Note == nil {
			continue
		}
		known := k.Key
		if known == "" {
			known = key
		}
		err := checkNote(k.Note, known)
		var unknown *note.UnverifiedNoteError
		if err != nil && (k.Key != "" || !errors.As(err, &unknown)) {
			return fmt.Errorf("%s: %w", k.Name, err)
		}
	}
	return nil
}

var (
	errNoCheckpoint = errors.New("this is not a checkpoint of a ledger")
	errEdited       = errors.New("its signature does not fit: it was edited or damaged after it was signed")
)

// checkNote checks a checkpoint by itself; the error is *note.UnverifiedNoteError if
// it is one, and another key signed it. A key that is none knows nothing.
func checkNote(signed []byte, key string) error {
	verifiers := note.VerifierList()
	v, err := note.NewVerifier(key)
	if err == nil {
		verifiers = note.VerifierList(v)
	}
	n, err := note.Open(signed, verifiers)
	var invalid *note.InvalidSignatureError
	var unknown *note.UnverifiedNoteError
	switch {
	case errors.As(err, &invalid):
		return errEdited
	case errors.As(err, &unknown):
		n = unknown.Note
	case err != nil:
		return errNoCheckpoint
	}
	if !strings.HasPrefix(n.Text, "lend/ledger/") {
		return errNoCheckpoint
	}
	if unknown != nil {
		return fmt.Errorf("it was signed with another key: %w", unknown)
	}
	if _, err := segment.OpenCheckpoint(signed, v); err != nil {
		return errNoCheckpoint
	}
	return nil
}

// keySuffix is what a key's file has behind the name of the checkpoint's.
const keySuffix = ".key"

// ReadKept reads a checkpoint, and the key beside it (FILE.key) if there is one; of
// the directory of a ledger, those that it has. The error names a file that has no
// checkpoint or no key, or a checkpoint that this key did not sign as it is.
func ReadKept(path string) (Kept, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return ownKept(path)
	}
	signed, err := readSmall(path)
	if err != nil {
		return Kept{}, fmt.Errorf("read checkpoint: %w", err)
	}
	k := Kept{Name: "checkpoint " + name.Show(path), Note: signed}
	key, err := readSmall(path + keySuffix)
	switch {
	case err == nil:
		k.Key = strings.TrimSpace(string(key))
		if _, err := note.NewVerifier(k.Key); err != nil {
			return Kept{}, fmt.Errorf("read the checkpoint's key: %s is not the key of a ledger", name.Show(path+keySuffix))
		}
	case !errors.Is(err, os.ErrNotExist):
		return Kept{}, fmt.Errorf("read the checkpoint's key: %w", err)
	}
	err = checkNote(signed, k.Key)
	var unknown *note.UnverifiedNoteError
	switch {
	case err == nil, k.Key == "" && errors.As(err, &unknown):
		return k, nil
	case errors.As(err, &unknown):
		err = fmt.Errorf("it was signed with another key than %s has", name.Show(path+keySuffix))
	}
	return Kept{}, fmt.Errorf("read %s: %w", k.Name, err)
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
	signed, err := folder.ReadCheckpoint(dir)
	if err == nil {
		err = checkNote(signed, head.Segment.VerifierKey)
	}
	if err != nil {
		return Kept{}, fmt.Errorf("read checkpoint of %s: %w", name.Show(dir), err)
	}
	return Kept{Name: "checkpoint of " + name.Show(dir), Note: signed, Key: head.Segment.VerifierKey}, nil
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
