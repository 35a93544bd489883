package segment

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/lendcli/lend/gateway/ledger/record"
)

// A frame is how a record lies in its file. spec: LEDGER-2.
//
//	offset  size  what
//	0       4     magic "LREC"
//	4       4     length of the payload, little endian
//	8       8     index of the record, little endian
//	16      8     offset up to which this file was durable when the frame was written
//	24      4     CRC-32C of the 24 bytes before
//	28      n     payload
//	28+n    4     CRC-32C of header and payload
//	32+n    2     "\r\n"
//
// It neither begins nor ends with a zero byte, so that a piece of zeros in it
// tells a write that never reached the disk from one that was damaged there.
const (
	frameHead = 28
	frameTail = 6
	sector    = 512
	// maxTorn bounds the bytes that were written and not yet known to be durable.
	// spec: LEDGER-5.
	maxTorn = 16 << 20
)

const frameMagic = "LREC"

func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

func checksum(b []byte) uint32 { return crc32.Checksum(b, castagnoli()) }

// AppendFrame appends the frame of one record to b.
func AppendFrame(b, payload []byte, index uint64, synced int64) []byte {
	at := len(b)
	b = append(b, frameMagic...)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(payload)))
	b = binary.LittleEndian.AppendUint64(b, index)
	b = binary.LittleEndian.AppendUint64(b, uint64(synced))
	b = binary.LittleEndian.AppendUint32(b, checksum(b[at:]))
	b = append(b, payload...)
	b = binary.LittleEndian.AppendUint32(b, checksum(b[at:]))
	return append(b, '\r', '\n')
}

// FrameSize is the size of the frame of a record of n bytes.
func FrameSize(n int) int64 { return int64(frameHead + n + frameTail) }

type head struct {
	length int
	index  uint64
	synced int64
}

// parseHead wants frameHead bytes.
func parseHead(b []byte) (head, bool) {
	if string(b[:4]) != frameMagic || binary.LittleEndian.Uint32(b[24:]) != checksum(b[:24]) {
		return head{}, false
	}
	h := head{
		length: int(binary.LittleEndian.Uint32(b[4:])),
		index:  binary.LittleEndian.Uint64(b[8:]),
		synced: int64(binary.LittleEndian.Uint64(b[16:])),
	}
	return h, h.length > 0 && h.length <= record.MaxRecord && h.synced >= 0
}

func tailFits(frame []byte) bool {
	n := len(frame) - frameTail
	return binary.LittleEndian.Uint32(frame[n:]) == checksum(frame[:n]) && string(frame[n+4:]) == "\r\n"
}

// ErrCorrupt is what every DamageError is.
var ErrCorrupt = errors.New("ledger is corrupt")

// DamageError is where and how a ledger is not as it was written.
type DamageError struct {
	Offset int64
	Index  uint64 // of the record
	What   string
}

func (d *DamageError) Error() string {
	return fmt.Sprintf("%v: record %d at offset %d: %s", ErrCorrupt, d.Index, d.Offset, d.What)
}

func (d *DamageError) Is(target error) bool { return target == ErrCorrupt }

// ErrTorn ends a scan at a tail that was written, but was never acknowledged as
// durable, and did not reach the disk whole.
var ErrTorn = errors.New("torn tail")

// Scanner reads the frames of a file in order, with one buffer. It does not see
// what is appended beyond its size.
type Scanner struct {
	r      io.ReaderAt
	size   int64
	off    int64
	index  uint64
	synced int64
	buf    []byte // of the file from bufOff
	bufOff int64
}

// Scan returns a Scanner of the first size bytes of a file, whose first record has
// the index first.
func Scan(r io.ReaderAt, size int64, first uint64) *Scanner { return ScanFrom(r, size, 0, first) }

// ScanFrom is Scan from an offset on, at which the record with the index next begins.
func ScanFrom(r io.ReaderAt, size, off int64, next uint64) *Scanner {
	return &Scanner{r: r, size: size, off: off, index: next}
}

// Offset is where the next frame begins; after ErrTorn, where the good part ends.
func (s *Scanner) Offset() int64 { return s.off }

// Frame is one record where it lies.
type Frame struct {
	Index   uint64
	Offset  int64
	Payload []byte // valid until the next call; not empty
}

// Next returns the next frame; the error is io.EOF at the clean end, ErrTorn, a
// *DamageError, or of the file. spec: LEDGER-2 to LEDGER-4.
func (s *Scanner) Next() (Frame, error) {
	if s.off == s.size {
		return Frame{}, io.EOF
	}
	if s.size-s.off < frameHead {
		return Frame{}, ErrTorn
	}
	b, err := s.peek(frameHead)
	if err != nil {
		return Frame{}, err
	}
	h, ok := parseHead(b)
	switch {
	case !ok:
		return Frame{}, s.judge(frameHead, "header")
	case h.index != s.index:
		return Frame{}, s.damage(fmt.Sprintf("it says that it is record %d", h.index))
	case h.synced < s.synced || h.synced > s.off:
		return Frame{}, s.damage("its durable offset is wrong")
	case FrameSize(h.length) > s.size-s.off:
		return Frame{}, ErrTorn
	}
	n := FrameSize(h.length)
	if b, err = s.peek(int(n)); err != nil {
		return Frame{}, err
	}
	if !tailFits(b) {
		return Frame{}, s.judge(n, "checksum")
	}
	f := Frame{Index: h.index, Offset: s.off, Payload: b[frameHead : frameHead+h.length]}
	s.off, s.index, s.synced = s.off+n, s.index+1, h.synced
	return f, nil
}

func (s *Scanner) damage(what string) error {
	return &DamageError{Offset: s.off, Index: s.index, What: what}
}

// judge decides about n bytes at off that do not fit. They are torn only if a
// whole piece of a sector is zero, as for a write that never reached the disk, and
// if nothing after them was written when they were already durable. spec: LEDGER-13.
func (s *Scanner) judge(n int64, what string) error {
	rest := s.size - s.off
	if rest > maxTorn {
		return s.damage(what)
	}
	b, err := s.peek(int(rest))
	if err != nil {
		return err
	}
	if !zeroPiece(b, s.off, n) || laterProof(b, s.off) {
		return s.damage(what)
	}
	return ErrTorn
}

// zeroPiece tells whether any sector that the first n bytes of b touch is zero as
// far as it lies in b, which begins at off of the file and ends where it ends.
func zeroPiece(b []byte, off, n int64) bool {
	for at := int64(0); at < n; {
		end := min(int64(len(b)), (off+at)/sector*sector+sector-off)
		piece := b[at:end]
		if len(piece) > 1 && len(bytes.TrimLeft(piece, "\x00")) == 0 {
			return true
		}
		at = end
	}
	return false
}

// laterProof looks for a frame that was written when off was durable.
func laterProof(b []byte, off int64) bool {
	for at := 1; ; at++ {
		i := bytes.Index(b[at:], []byte(frameMagic))
		if i < 0 || at+i+frameHead > len(b) {
			return false
		}
		at += i
		if h, ok := parseHead(b[at:]); ok && h.synced > off {
			return true
		}
	}
}

const scanBuffer = 256 << 10

// peek returns n bytes at off.
func (s *Scanner) peek(n int) ([]byte, error) {
	have := s.off - s.bufOff
	if have >= 0 && have+int64(n) <= int64(len(s.buf)) {
		return s.buf[have : have+int64(n)], nil
	}
	want := int(min(s.size-s.off, int64(max(n, scanBuffer))))
	if cap(s.buf) < want {
		s.buf = make([]byte, want)
	}
	s.buf, s.bufOff = s.buf[:want], s.off
	if _, err := s.r.ReadAt(s.buf, s.off); err != nil {
		return nil, fmt.Errorf("read ledger: %w", err)
	}
	return s.buf[:n], nil
}

// ReadFrame returns the record in the frame at off in memory of its own.
func ReadFrame(r io.ReaderAt, off int64) ([]byte, error) {
	var hb [frameHead]byte
	if _, err := r.ReadAt(hb[:], off); err != nil {
		return nil, fmt.Errorf("read ledger: %w", err)
	}
	h, ok := parseHead(hb[:])
	if !ok {
		return nil, &DamageError{Offset: off, What: "header"}
	}
	b := make([]byte, FrameSize(h.length))
	if _, err := r.ReadAt(b, off); err != nil {
		return nil, fmt.Errorf("read ledger: %w", err)
	}
	if !tailFits(b) {
		return nil, &DamageError{Offset: off, Index: h.index, What: "checksum"}
	}
	return b[frameHead : frameHead+h.length], nil
}
