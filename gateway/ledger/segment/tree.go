package segment

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// Tree is the right edge of the Merkle tree (RFC 6962) over all records: one hash
// for each bit that is set in size, the largest subtree first. It is enough to add
// leaves and to know the root. spec: LEDGER-8.
type Tree struct {
	size uint64
	edge []tlog.Hash
}

// Add adds a record.
func (t *Tree) Add(record []byte) {
	h := tlog.RecordHash(record)
	for n := t.size; n&1 == 1; n >>= 1 {
		h = tlog.NodeHash(t.edge[len(t.edge)-1], h)
		t.edge = t.edge[:len(t.edge)-1]
	}
	t.edge = append(t.edge, h)
	t.size++
}

// Root is the root hash.
func (t *Tree) Root() tlog.Hash {
	if t.size == 0 {
		h, _ := tlog.TreeHash(0, nil)
		return h
	}
	h := t.edge[len(t.edge)-1]
	for i := len(t.edge) - 2; i >= 0; i-- {
		h = tlog.NodeHash(t.edge[i], h)
	}
	return h
}

// Size is the number of records.
func (t *Tree) Size() uint64 { return t.size }

// Edge returns the hashes of the right edge, 32 bytes each, for Resume.
func (t *Tree) Edge() []byte {
	out := make([]byte, 0, len(t.edge)*tlog.HashSize)
	for _, h := range t.edge {
		out = append(out, h[:]...)
	}
	return out
}

// Resume returns the tree of size records that has this edge; false if there is
// none.
func Resume(size uint64, edge []byte) (Tree, bool) {
	if len(edge) != bits.OnesCount64(size)*tlog.HashSize {
		return Tree{}, false
	}
	t := Tree{size: size}
	for ; len(edge) > 0; edge = edge[tlog.HashSize:] {
		t.edge = append(t.edge, tlog.Hash(edge[:tlog.HashSize]))
	}
	return t, true
}

// Clone returns an independent copy.
func (t *Tree) Clone() Tree {
	return Tree{size: t.size, edge: append([]tlog.Hash(nil), t.edge...)}
}

const originPrefix = "lend/ledger/"

// Origin is the origin line of a ledger's checkpoints and the name of their key.
// spec: LEDGER-9.
func Origin(id [16]byte) string { return originPrefix + hex.EncodeToString(id[:]) }

// SignCheckpoint writes a checkpoint in C2SP form: origin, size, root; signed as
// a note.
func SignCheckpoint(id [16]byte, t *Tree, signer note.Signer) ([]byte, error) {
	root := t.Root()
	text := fmt.Sprintf("%s\n%d\n%s\n", Origin(id), t.size, base64.StdEncoding.EncodeToString(root[:]))
	signed, err := note.Sign(&note.Note{Text: text}, signer)
	if err != nil {
		return nil, fmt.Errorf("sign checkpoint: %w", err)
	}
	return signed, nil
}

// Checkpoint is what was signed.
type Checkpoint struct {
	ID   [16]byte // of the ledger
	Size uint64   // records
	Root tlog.Hash
}

var errCheckpoint = errors.New("not a checkpoint of this form")

// MaxCheckpoint bounds a signed checkpoint, in bytes.
const MaxCheckpoint = 4 << 10

// OpenCheckpoint checks the signature and reads what was signed, strictly.
func OpenCheckpoint(signed []byte, verifier note.Verifier) (Checkpoint, error) {
	if len(signed) > MaxCheckpoint {
		return Checkpoint{}, errCheckpoint
	}
	n, err := note.Open(signed, note.VerifierList(verifier))
	if err != nil {
		return Checkpoint{}, fmt.Errorf("open checkpoint: %w", err)
	}
	lines := strings.Split(n.Text, "\n")
	// note reads base64 with any unused bits; one signature has one form here.
	_, loose := base64.StdEncoding.Strict().DecodeString(n.Sigs[0].Base64)
	if len(lines) != 4 || lines[3] != "" || loose != nil {
		return Checkpoint{}, errCheckpoint
	}
	var c Checkpoint
	id, ok := strings.CutPrefix(lines[0], originPrefix)
	raw, err := hex.DecodeString(id)
	if !ok || err != nil || len(raw) != len(c.ID) {
		return Checkpoint{}, errCheckpoint
	}
	copy(c.ID[:], raw)
	if c.Size, err = strconv.ParseUint(lines[1], 10, 63); err != nil || strconv.FormatUint(c.Size, 10) != lines[1] {
		return Checkpoint{}, errCheckpoint
	}
	root, err := base64.StdEncoding.Strict().DecodeString(lines[2])
	if err != nil || len(root) != len(c.Root) || Origin(c.ID) != lines[0] {
		return Checkpoint{}, errCheckpoint
	}
	copy(c.Root[:], root)
	return c, nil
}
