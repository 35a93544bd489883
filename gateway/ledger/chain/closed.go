package chain

import (
	"bytes"
	"errors"
	"io"
	"slices"

	"github.com/lendcli/lend/gateway/ledger/folder"
	"github.com/lendcli/lend/gateway/ledger/record"
	"github.com/lendcli/lend/gateway/ledger/segment"
)

// The file of closed invocations is frames as in a segment, each of whose records is
// hashes of scopes, ascending. In memory they are one ascending slice: 16 bytes for
// each.
const (
	hashSize    = len(folder.Hash{})
	closedFrame = 1 << 15 // hashes in a frame
)

// AppendClosed returns the frames of hashes that are not there yet, and the tree
// with them.
func AppendClosed(more []folder.Hash, off int64, tree segment.Tree) ([]byte, segment.Tree) {
	var out []byte
	tree = tree.Clone()
	for part := range slices.Chunk(more, closedFrame) {
		payload := make([]byte, 0, len(part)*hashSize)
		for _, h := range part {
			payload = append(payload, h[:]...)
		}
		out = segment.AppendFrame(out, payload, tree.Size(), off)
		tree.Add(payload)
	}
	return out, tree
}

// ReadClosed reads the closed invocations that a segment counts, ascending, and the
// tree over their frames; what is behind them is not the ledger's. spec: LEDGER-31.
func ReadClosed(dir string, c record.Closed) ([]folder.Hash, segment.Tree, error) {
	b, err := folder.ReadClosed(dir, int64(c.Bytes))
	if err != nil {
		return nil, segment.Tree{}, err
	}
	all, tree, err := decodeClosed(b)
	if err == nil && (tree.Size() != c.Records || uint64(len(all)) != c.Count || c.Records > 0 && [32]byte(tree.Root()) != c.Root) {
		err = &segment.DamageError{What: "the closed invocations are not those of the newest segment"}
	}
	return all, tree, err
}

func decodeClosed(b []byte) (all []folder.Hash, tree segment.Tree, err error) {
	bad := func(what string) error {
		return &segment.DamageError{Index: tree.Size(), What: "closed invocations: " + what}
	}
	s := segment.Scan(bytes.NewReader(b), int64(len(b)), 0)
	for {
		f, err := s.Next()
		switch {
		case errors.Is(err, io.EOF):
			slices.SortFunc(all, folder.Hash.Compare)
			return all, tree, nil
		case err != nil:
			return nil, tree, bad(err.Error())
		case len(f.Payload)%hashSize != 0:
			return nil, tree, bad("malformed record")
		}
		for p := f.Payload; len(p) > 0; p = p[hashSize:] {
			all = append(all, folder.Hash(p[:hashSize]))
		}
		tree.Add(f.Payload)
	}
}

// Merge returns one ascending slice of two.
func Merge(a, b []folder.Hash) []folder.Hash {
	out := make([]folder.Hash, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		if a[0].Compare(b[0]) <= 0 {
			out, a = append(out, a[0]), a[1:]
		} else {
			out, b = append(out, b[0]), b[1:]
		}
	}
	return append(append(out, a...), b...)
}

// Contains tells whether h is in an ascending slice.
func Contains(sorted []folder.Hash, h folder.Hash) bool {
	_, ok := slices.BinarySearchFunc(sorted, h, folder.Hash.Compare)
	return ok
}
