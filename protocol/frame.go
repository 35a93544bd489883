package protocol

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
)

// Numbers of frames that a receiver may skip if it does not know them. spec: GREASE-1
const (
	firstIgnorable = 1024
	lastIgnorable  = 2047
)

const (
	minBuffer = 1 << 10
	// peekSize is how much a Reader reads when it does not know the length of the
	// next frame: several small frames, and little of a large one that would have
	// to be moved.
	peekSize = 512
)

// Reader reads the frames of one direction of a run stream. It checks bounds,
// encoding, order and offsets. It belongs to one goroutine. spec: FRAME-1
type Reader struct {
	r      io.Reader
	sender Role
	state  State
	tally  tally

	buf        []byte
	head, tail int // buf[head:tail] was read and not used
	data       Data
	ignored    int
	broken     *ViolationError
}

// NewReader returns a Reader for the end of r that plays role: a Gateway reads
// what a Caller sends. It keeps no more than one frame in memory.
func NewReader(r io.Reader, role Role) *Reader {
	return &Reader{r: r, sender: role.other()}
}

// Read returns the next frame, as a pointer to a type of this package. A *Data is
// valid until the next Read. The error is io.EOF if the stream ended between two
// frames, io.ErrUnexpectedEOF if inside one, a *ViolationError for everything
// that the protocol does not allow, else an error of the stream. After a
// violation every Read returns it again; after other errors Read may be called
// again and goes on where it was.
func (r *Reader) Read() (Frame, error) {
	if r.broken != nil {
		return nil, r.broken
	}
	r.data.Payload = nil
	for {
		body, err := r.next()
		if err != nil {
			return nil, r.fail(err)
		}
		f, v := r.parse(body)
		if v != nil {
			return nil, r.fail(v)
		}
		if f != nil {
			return f, nil
		}
	}
}

// Swap takes other for the buffer that holds the payload of the *Data which Read has just
// returned, from at on, so that it need not be copied: the payload stays valid as long
// as buf does, which is the caller's now. Nothing is swapped, and ok is false, if the
// last frame was no data, the buffer holds more than it, or other has not its size: that
// of the largest data frame, DataHeaderMax + MaxData bytes, once one has come.
func (r *Reader) Swap(other []byte) (buf []byte, at int, ok bool) {
	n := len(r.data.Payload)
	if n == 0 || r.head != r.tail || len(other) != len(r.buf) {
		return nil, 0, false
	}
	buf, at = r.buf, r.head-n
	r.buf, r.head, r.tail, r.data.Payload = other, 0, 0, nil
	return buf, at, true
}

func (r *Reader) fail(err error) error {
	var v *ViolationError
	if errors.As(err, &v) {
		r.broken = v
	}
	return err
}

// State returns how far the sender has come.
func (r *Reader) State() State { return r.state }

// Offset returns how many bytes of one stream (0 is the input) the sender has
// sent, counted from the beginning of the operation.
func (r *Reader) Offset(s Stream) uint64 { return r.tally.count[s] }

// Resume tells a gateway's Reader, after an Attach, where the input continues: at
// the count that Accepted names. Otherwise it begins at 0.
func (r *Reader) Resume(stdin uint64) { r.tally.count[0] = stdin }

// parse returns nil if body is a frame to ignore.
func (r *Reader) parse(body []byte) (Frame, *ViolationError) {
	var f Frame
	var v *ViolationError
	switch {
	case len(body) > 0 && body[0] == tagData:
		v = parseData(body, &r.data)
		f = &r.data
	case r.state != StateInit && len(body) > MaxFrame:
		v = violation("FRAME-3", "a frame that is too long")
	default:
		f, v = parseFrame(body)
	}
	if v != nil {
		return nil, v
	}
	if f == nil {
		return nil, r.ignore()
	}
	r.ignored = 0
	if v := r.admit(f); v != nil {
		return nil, v
	}
	return f, nil
}

// ignore counts a frame that is skipped. Its length was bounded before. spec: GREASE-2
func (r *Reader) ignore() *ViolationError {
	r.ignored++
	switch {
	case r.sender == Caller && r.state == StateInit, r.state == StateDone:
		return violation("GREASE-2", "an unknown frame before the first or after the last")
	case r.ignored > maxIgnored:
		return violation("GREASE-2", "too many unknown frames")
	}
	return nil
}

// admit checks the order and the counts.
func (r *Reader) admit(f Frame) *ViolationError {
	if v := checkSender(f, r.sender); v != nil {
		return v
	}
	next, ok := Next(r.sender, r.state, f.frameType(), allowsInput(f))
	if !ok {
		return violation("STATE-1", "a frame out of order")
	}
	if v := r.tally.take(f); v != nil {
		return v
	}
	if r.state == StateInit && len(r.buf) > maxDataBody+3 && r.head == r.tail {
		r.buf, r.head, r.tail = nil, 0, 0 // a large Start was copied
	}
	r.state = next
	return nil
}

// limit bounds the length of the next frame. spec: FRAME-2
func (r *Reader) limit() int {
	switch {
	case r.state != StateInit:
		return maxDataBody
	case r.sender == Caller:
		return MaxStart
	}
	return MaxFrame
}

// frameLength reads the length at the beginning of b; n is 0 if more bytes are
// needed. What it says does not depend on how many bytes follow. spec: FRAME-1,
// FRAME-2
func frameLength(b []byte, limit int) (length, n int, v *ViolationError) {
	for i := range min(len(b), 3) {
		length |= int(b[i]&0x7f) << (7 * i)
		if b[i] >= 0x80 {
			continue
		}
		switch {
		case b[i] == 0:
			return 0, 0, violation("FRAME-1", "an empty frame or a length that is not minimal")
		case length > limit:
			return 0, 0, violation("FRAME-2", "a frame that is too long")
		}
		return length, i + 1, nil
	}
	if len(b) >= 3 {
		return 0, 0, violation("FRAME-2", "a length that is too great")
	}
	return 0, 0, nil
}

// next returns the body of the next frame, in the buffer.
func (r *Reader) next() ([]byte, error) {
	for {
		have := r.buf[r.head:r.tail]
		length, n, v := frameLength(have, r.limit())
		switch {
		case v != nil:
			return nil, v
		case n > 0 && len(have)-n >= length:
			r.head += n + length
			return have[n : n+length], nil
		}
		need := 0
		if n > 0 {
			need = n + length
		}
		if err := r.fill(need); err != nil {
			return nil, err
		}
	}
}

// fill reads once. need is the length of the frame that begins at head, 0 if it
// is not known. The buffer grows only as bytes arrive.
func (r *Reader) fill(need int) error {
	held := r.tail - r.head
	want := need
	if need == 0 {
		want = peekSize
	}
	if held == 0 || r.head+want > len(r.buf) {
		copy(r.buf, r.buf[r.head:r.tail])
		r.head, r.tail = 0, held
	}
	if r.tail == len(r.buf) {
		grown := make([]byte, max(minBuffer, min(2*len(r.buf), maxRead(need))))
		copy(grown, r.buf[:r.tail])
		r.buf = grown
	}
	n, err := r.r.Read(r.buf[r.tail:min(r.head+want, len(r.buf))])
	r.tail += n
	switch {
	case n > 0:
		return nil
	case err == nil:
		return io.ErrNoProgress
	case err == io.EOF && held > 0:
		return io.ErrUnexpectedEOF
	case err == io.EOF:
		return io.EOF
	}
	return fmt.Errorf("read frame: %w", err)
}

// maxRead is the size of a buffer for a frame of need bytes: once a frame is
// large, room for the largest data frame, so that it does not grow again.
func maxRead(need int) int {
	if need > minBuffer {
		return max(need, maxDataBody+3)
	}
	return minBuffer
}

// ignorable tells whether body is one frame that may be skipped.
func ignorable(body []byte) bool {
	v, n := minimalVarint(body) // 0 if there is none
	if v&7 != uint64(protowire.BytesType) || v>>3 < firstIgnorable || v>>3 > lastIgnorable {
		return false
	}
	l, m := minimalVarint(body[n:])
	return m > 0 && l == uint64(len(body)-n-m)
}

// Writer sends frames, each with one Write. It may be used by several
// goroutines. It does not check order or offsets: the state of a sender belongs
// to its owner.
type Writer struct {
	mu  sync.Mutex // guards w (one frame at a time) and buf
	w   io.Writer
	buf []byte
}

// NewWriter returns a Writer on w.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// WriteFrame encodes and sends f. An f that is not valid is an error before
// anything is sent. For data, WriteData is faster.
func (w *Writer) WriteFrame(f Frame) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	b, err := appendFrame(w.buf[:0], f)
	if err != nil {
		return err
	}
	if cap(b) <= MaxFrame {
		w.buf = b
	}
	return w.write(b)
}

// WriteData sends a payload of n bytes that lies at buf[DataHeaderMax:], whose
// room in front it overwrites. It copies and allocates nothing. It panics as
// PutDataHeader does.
func (w *Writer) WriteData(buf []byte, s Stream, offset uint64, n int) error {
	start := PutDataHeader(buf, s, offset, n)
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.write(buf[start : DataHeaderMax+n])
}

// WriteGrease sends a frame that the other end does not know and has to ignore:
// number is taken modulo 1024, body is at most 1 KiB. Senders do this now and
// then, so that receivers that cannot are found early. spec: GREASE-3
func (w *Writer) WriteGrease(number int, body []byte) error {
	if len(body) > 1<<10 {
		return errors.New("write grease: body too long")
	}
	b := protowire.AppendTag(nil, protowire.Number(firstIgnorable+number&0x3ff), protowire.BytesType)
	b = protowire.AppendBytes(b, body)
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.write(append(protowire.AppendVarint(nil, uint64(len(b))), b...))
}

func (w *Writer) write(b []byte) error {
	if _, err := w.w.Write(b); err != nil {
		return fmt.Errorf("write frame: %w", err)
	}
	return nil
}
