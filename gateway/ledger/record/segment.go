package record

import "time"

// Segment is the first record of a file. In the first file of a ledger only ID,
// Birth and VerifierKey are set. spec: LEDGER-28.
type Segment struct {
	ID    [16]byte // of the ledger
	Birth time.Time
	First uint64 // index of this record
	// VerifierKey is the public key of the checkpoints, as package note writes it.
	VerifierKey string

	Base  uint64 // bytes of all files before
	Edge  []byte // right edge of the Merkle tree over all records before
	Point []byte // signed checkpoint of these
	// Kept is the index of the first record that is not pruned.
	Kept   uint64
	Closed Closed
}

// Closed says what of the file of closed invocations belongs to the ledger.
type Closed struct {
	Records uint64   // frames
	Bytes   uint64   // of the file, from its begin
	Count   uint64   // of invocations
	Root    [32]byte // of the Merkle tree over the frames' records
}

const (
	formatVersion = 1
	maxEdge       = 64 * 32
	maxPoint      = 4 << 10
)

// IsSegment tells whether a record begins a file; payload is not empty.
func IsSegment(payload []byte) bool {
	return payload[0] == KindSegment || payload[0] == KindContinued
}

// Encode writes the record of a segment that begins at a moment.
func (s *Segment) Encode(at time.Time) []byte {
	e := new(encoder)
	if s.First == 0 {
		e.byte(KindSegment)
	} else {
		e.byte(KindContinued)
	}
	e.time(at)
	e.uint(formatVersion)
	e.raw(s.ID[:])
	e.time(s.Birth)
	e.uint(s.First)
	e.string(s.VerifierKey)
	if s.First == 0 {
		return e.b
	}
	e.uint(s.Base)
	e.bytes(s.Edge)
	e.bytes(s.Point)
	e.uint(s.Kept)
	e.uint(s.Closed.Records)
	e.uint(s.Closed.Bytes)
	e.uint(s.Closed.Count)
	e.raw(s.Closed.Root[:])
	return e.b
}

// DecodeSegment reads the record of a segment; it shares memory with payload.
func DecodeSegment(payload []byte) (Segment, error) {
	d := &decoder{b: payload}
	kind := d.byte()
	d.time()
	version := d.uint()
	s := Segment{ID: [16]byte(d.raw(16)), Birth: d.time(), First: d.uint(), VerifierKey: d.text(256)}
	if version != formatVersion || (kind == KindSegment) != (s.First == 0) {
		d.fail()
	}
	switch kind {
	case KindSegment:
	case KindContinued:
		s.Base, s.Edge, s.Point = d.uint(), d.bytes(maxEdge), d.bytes(maxPoint)
		s.Kept = d.uint()
		s.Closed = Closed{Records: d.uint(), Bytes: d.uint(), Count: d.uint(), Root: [32]byte(d.raw(32))}
		if s.Base > 1<<62 || s.Closed.Bytes > 1<<40 || s.Kept > s.First {
			d.fail()
		}
	default:
		d.fail()
	}
	return s, d.end()
}
