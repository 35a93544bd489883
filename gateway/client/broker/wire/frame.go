package wire

import (
	"encoding/binary"
	"errors"
)

// Bounds of a frame, in bytes unless they say otherwise.
const (
	// Version is the only one there is.
	Version = 1
	// HeaderSize is that of every header.
	HeaderSize = 6
	// MaxPayload bounds a payload.
	MaxPayload = 512 << 10
	// MaxAnswer bounds an Answer.
	MaxAnswer = 1 << 20
	// MaxArguments counts the arguments of a call; MaxArgument bounds each, and
	// MaxArgumentBytes all of them together. They are those of the protocol.
	MaxArguments     = 256
	MaxArgument      = 131071
	MaxArgumentBytes = 256 << 10
	// MaxLease bounds the text of a lease file.
	MaxLease = 64 << 10

	maxWord   = 256
	maxText   = 16 << 10
	maxDetail = 16 << 10
)

// Kind says what a frame is.
type Kind byte

// The kinds. Callers send those up to KindCancel.
const (
	KindCall    Kind = 'C' // a shim's: Call
	KindRun     Kind = 'R' // of lend run: Call with more said
	KindControl Kind = 'Q' // a question in JSON, answered by KindAnswer
	KindCancel  Kind = 'K' // stop what runs; again: at once
	KindExit    Kind = 'E' // Exit
	KindAnswer  Kind = 'A' // JSON
)

// ErrMalformed says that bytes are no frame, or not one that may come here.
var ErrMalformed = errors.New("malformed frame")

// Header returns the header of a payload of n bytes; n is at most that kind's bound.
func Header(k Kind, n int) []byte {
	b := make([]byte, 2, HeaderSize)
	b[0], b[1] = Version, byte(k)
	return binary.BigEndian.AppendUint32(b, uint32(n))
}

// ParseHeader reads a header of HeaderSize bytes. What it returns is a kind that there
// is and a length within its bound; else the error is ErrMalformed.
func ParseHeader(b []byte) (Kind, int, error) {
	if len(b) != HeaderSize || b[0] != Version {
		return 0, 0, ErrMalformed
	}
	k, n, most := Kind(b[1]), binary.BigEndian.Uint32(b[2:]), uint32(MaxPayload)
	switch k {
	case KindCall, KindRun, KindControl, KindExit:
	case KindAnswer:
		most = MaxAnswer
	case KindCancel:
		most = 0
	default:
		return 0, 0, ErrMalformed
	}
	if n > most {
		return 0, 0, ErrMalformed
	}
	return k, int(n), nil
}

// appendField appends one field; an empty value is a field too.
func appendField[T string | []byte](b []byte, tag byte, value T) []byte {
	b = append(b, tag)
	b = binary.BigEndian.AppendUint32(b, uint32(len(value)))
	return append(b, value...)
}

const fieldHeader = 5

// nextField cuts one field off. It copies nothing.
func nextField(b []byte) (tag byte, value, rest []byte, err error) {
	if len(b) < fieldHeader {
		return 0, nil, nil, ErrMalformed
	}
	n := binary.BigEndian.Uint32(b[1:])
	if uint64(n) > uint64(len(b)-fieldHeader) {
		return 0, nil, nil, ErrMalformed
	}
	return b[0], b[fieldHeader : fieldHeader+n], b[fieldHeader+n:], nil
}
