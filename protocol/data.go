package protocol

import (
	"encoding/binary"
	"math/bits"

	"google.golang.org/protobuf/encoding/protowire"
)

// Tags of a data frame: RunFrame.data, and the fields of Data.
const (
	tagData    = byte(TypeData)<<3 | byte(protowire.BytesType)
	tagStream  = 1<<3 | byte(protowire.VarintType)
	tagOffset  = 2<<3 | byte(protowire.VarintType)
	tagPayload = 3<<3 | byte(protowire.BytesType)
)

// maxDataBody bounds a data frame without its length prefix of three bytes.
const maxDataBody = MaxData + DataHeaderMax - 3

// PutDataHeader writes the header of a data frame directly before a payload of n
// bytes (1 to MaxData) that lies at buf[DataHeaderMax:], and returns where the
// frame begins: buf[start:DataHeaderMax+n] is the whole frame. It allocates
// nothing. It panics if n is out of bounds or buf too short. spec: DATA-1
func PutDataHeader(buf []byte, stream Stream, offset uint64, n int) (start int) {
	if n < 1 || n > MaxData || len(buf) < DataHeaderMax+n {
		panic("protocol: data frame out of bounds")
	}
	i := DataHeaderMax
	i = putBack(buf, i, uint64(n))
	i--
	buf[i] = tagPayload
	if offset != 0 {
		i = putBack(buf, i, offset)
		i--
		buf[i] = tagOffset
	}
	if stream != 0 {
		i--
		buf[i] = byte(stream)
		i--
		buf[i] = tagStream
	}
	i = putBack(buf, i, uint64(DataHeaderMax+n-i))
	i--
	buf[i] = tagData
	return putBack(buf, i, uint64(DataHeaderMax+n-i))
}

// putBack writes the varint of v so that it ends before buf[end] and returns
// where it begins.
func putBack(buf []byte, end int, v uint64) int {
	begin := end - (bits.Len64(v|1)+6)/7
	binary.PutUvarint(buf[begin:end], v)
	return begin
}

// parseData reads the body of a data frame in place. d.Payload refers to body.
// spec: DATA-1
func parseData(body []byte, d *Data) *ViolationError {
	b, ok := lengthDelimited(body, tagData)
	if !ok {
		return errDataForm
	}
	*d = Data{}
	if len(b) > 0 && b[0] == tagStream {
		v, n := minimalVarint(b[1:])
		if v == 0 || v > uint64(Stderr) { // 0 where there is none, too
			return errDataForm
		}
		d.Stream, b = Stream(v), b[1+n:]
	}
	if len(b) > 0 && b[0] == tagOffset {
		v, n := minimalVarint(b[1:])
		if v == 0 {
			return errDataForm
		}
		d.Offset, b = v, b[1+n:]
	}
	p, ok := lengthDelimited(b, tagPayload)
	if !ok {
		return errDataForm
	}
	if len(p) == 0 || len(p) > MaxData || d.Offset+uint64(len(p)) < d.Offset {
		return errDataSize
	}
	d.Payload = p[:len(p):len(p)]
	return nil
}

// Made once, since the data path allocates nothing.
var (
	errDataForm = violation("DATA-1", "malformed data frame")
	errDataSize = violation("DATA-2", "data of no bytes or too many")
)

// lengthDelimited returns what follows tag and a minimal length that covers all
// of the rest of b.
func lengthDelimited(b []byte, tag byte) ([]byte, bool) {
	if len(b) == 0 || b[0] != tag {
		return nil, false
	}
	v, n := minimalVarint(b[1:])
	rest := b[1+n:]
	return rest, n > 0 && v == uint64(len(rest))
}

// minimalVarint reads a varint in its shortest form; n is 0 if there is none.
func minimalVarint(b []byte) (v uint64, n int) {
	v, n = binary.Uvarint(b)
	if n <= 0 || n > 1 && b[n-1] == 0 {
		return 0, 0
	}
	return v, n
}
