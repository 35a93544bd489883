package snapshot

import (
	"encoding/binary"
	"errors"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/lendcli/lend/gateway/ledger/folder"
)

// Start is a start record of the segment.
type Start struct {
	Index  uint64
	Offset int64 // in the file
	Hash   folder.Hash
}

// End is an end record of the segment; its start may be in an older one.
type End struct {
	Of     uint64 // index of the start
	Offset int64
}

// Scope is what a segment says of one (issuer, invocation, holder).
type Scope struct {
	Until  int64 // greatest lease not-after, in Unix milliseconds
	Frozen int64 // offset of the first start with a grant, -1 if there is none
}

// Index is what the views need of one segment. It is not safe for concurrent use.
type Index struct {
	First uint64 // index of the first record
	Until int64  // greatest lease not-after, in Unix milliseconds
	High  int64  // greatest time of a record, in Unix milliseconds

	Starts []Start // ascending
	Ends   []End
	Scopes map[folder.Hash]Scope
	Leases map[folder.Hash]uint32 // how many starts

	// Set by Seal.
	Records uint64
	Size    int64
	Root    [32]byte // of the tree over all records, up to the last one of the segment
}

// New returns the empty index of a segment.
func New(first uint64) *Index {
	return &Index{First: first, Scopes: make(map[folder.Hash]Scope), Leases: make(map[folder.Hash]uint32)}
}

// AddStart adds a start record; s has its hash, index and offset. AddLease is for
// each lease that it counts against.
func (x *Index) AddStart(s Start, scope folder.Hash, until time.Time, frozen bool) {
	x.Starts = append(x.Starts, s)
	sc, ok := x.Scopes[scope]
	if !ok {
		sc.Frozen = -1
	}
	if frozen && sc.Frozen < 0 {
		sc.Frozen = s.Offset
	}
	sc.Until = max(sc.Until, until.UnixMilli())
	x.Scopes[scope] = sc
	x.Until = max(x.Until, sc.Until)
}

// AddLease counts the newest start against a lease.
func (x *Index) AddLease(lease folder.Hash) { x.Leases[lease]++ }

// AddEnd adds an end record.
func (x *Index) AddEnd(e End) { x.Ends = append(x.Ends, e) }

// Seen notes the time of any record.
func (x *Index) Seen(at time.Time) { x.High = max(x.High, at.UnixMilli()) }

// Seal says what the segment has become.
func (x *Index) Seal(records uint64, size int64, root [32]byte) {
	x.Records, x.Size, x.Root = records, size, root
}

// Find returns the place of a start in Starts.
func (x *Index) Find(index uint64) (int, bool) {
	return slices.BinarySearchFunc(x.Starts, index, func(s Start, i uint64) int {
		switch {
		case s.Index < i:
			return -1
		case s.Index > i:
			return 1
		}
		return 0
	})
}

const (
	magic    = "lend ledger index 1\n"
	headSize = len(magic) + 16 + 5*8 + 32 + 4*8
	macSize  = 32

	startSize, endSize, scopeSize, leaseSize = 24, 16, 32, 20
)

var (
	errTooLarge = errors.New("segment too large for a snapshot")
	errDamaged  = errors.New("not a snapshot of this form")
)

func sum(k *folder.Keys, body []byte) []byte {
	mac := k.Digest([][]byte{[]byte(magic), body})
	return mac[:]
}

// Encode writes a sealed index for the ledger id; an error if the segment has 4 GiB
// or more. The same index is always the same bytes.
func (x *Index) Encode(id [16]byte, k *folder.Keys) ([]byte, error) {
	if x.Size > math.MaxUint32 || x.Records > math.MaxUint32 {
		return nil, errTooLarge
	}
	le := binary.LittleEndian
	b := make([]byte, 0, headSize+macSize+
		len(x.Starts)*startSize+len(x.Ends)*endSize+len(x.Scopes)*scopeSize+len(x.Leases)*leaseSize)
	b = append(append(b, magic...), id[:]...)
	for _, v := range []uint64{x.First, x.Records, uint64(x.Size), uint64(x.Until), uint64(x.High)} {
		b = le.AppendUint64(b, v)
	}
	b = append(b, x.Root[:]...)
	for _, n := range []int{len(x.Starts), len(x.Ends), len(x.Scopes), len(x.Leases)} {
		b = le.AppendUint64(b, uint64(n))
	}
	for _, s := range x.Starts {
		b = le.AppendUint32(b, uint32(s.Index-x.First))
		b = le.AppendUint32(b, uint32(s.Offset))
		b = append(b, s.Hash[:]...)
	}
	for _, e := range x.Ends {
		b = le.AppendUint64(le.AppendUint64(b, e.Of), uint64(e.Offset))
	}
	for _, h := range sorted(x.Scopes) {
		b = append(b, h[:]...)
		b = le.AppendUint64(le.AppendUint64(b, uint64(x.Scopes[h].Until)), uint64(x.Scopes[h].Frozen))
	}
	for _, h := range sorted(x.Leases) {
		b = le.AppendUint32(append(b, h[:]...), x.Leases[h])
	}
	return append(b, sum(k, b)...), nil
}

func sorted[V any](m map[folder.Hash]V) []folder.Hash {
	return slices.SortedFunc(maps.Keys(m), folder.Hash.Compare)
}

// Decode reads what Encode wrote for this ledger, strictly; it checks the keyed
// checksum before anything else.
func Decode(b []byte, id [16]byte, k *folder.Keys) (*Index, error) {
	n := len(b) - macSize
	if n < headSize || string(sum(k, b[:n])) != string(b[n:]) {
		return nil, errDamaged
	}
	if b = b[:n]; string(b[:len(magic)]) != magic || [16]byte(b[len(magic):]) != id {
		return nil, errDamaged
	}
	b = b[len(magic)+16:]
	u64 := func() uint64 {
		v := binary.LittleEndian.Uint64(b)
		b = b[8:]
		return v
	}
	x := &Index{First: u64(), Records: u64(), Size: int64(u64()), Until: int64(u64()), High: int64(u64())}
	x.Root, b = [32]byte(b), b[32:]
	starts, ends, scopes, leases := u64(), u64(), u64(), u64()
	if most := uint64(n); starts > most || ends > most || scopes > most || leases > most ||
		uint64(len(b)) != starts*startSize+ends*endSize+scopes*scopeSize+leases*leaseSize {
		return nil, errDamaged
	}
	x.body(b, int(starts), int(ends), int(scopes), int(leases))
	return x, nil
}

// body reads the rows; their size was checked.
func (x *Index) body(b []byte, starts, ends, scopes, leases int) {
	le := binary.LittleEndian
	x.Starts, x.Ends = make([]Start, starts), make([]End, ends)
	x.Scopes, x.Leases = make(map[folder.Hash]Scope, scopes), make(map[folder.Hash]uint32, leases)
	for i := range x.Starts {
		x.Starts[i] = Start{x.First + uint64(le.Uint32(b)), int64(le.Uint32(b[4:])), folder.Hash(b[8:24])}
		b = b[startSize:]
	}
	for i := range x.Ends {
		x.Ends[i] = End{le.Uint64(b), int64(le.Uint64(b[8:]))}
		b = b[endSize:]
	}
	for range scopes {
		x.Scopes[folder.Hash(b[:16])] = Scope{int64(le.Uint64(b[16:])), int64(le.Uint64(b[24:]))}
		b = b[scopeSize:]
	}
	for range leases {
		x.Leases[folder.Hash(b[:16])] = le.Uint32(b[16:])
		b = b[leaseSize:]
	}
}
