package envelope

import (
	"bytes"
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Encode returns the canonical encoding of a payload, which for the messages of lend
// is the deterministic one of this library. It refuses a string that is not UTF-8.
func Encode(m proto.Message) ([]byte, error) {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode payload: %w", err)
	}
	return b, nil
}

// Decode reads a payload into m and accepts only what Encode would write of it. The
// error has FaultEncoding.
func Decode(b []byte, m proto.Message) *Error {
	if err := proto.Unmarshal(b, m); err != nil {
		return refuse(FaultEncoding, "not a protobuf message of this kind")
	}
	if hasUnknown(m.ProtoReflect()) {
		return refuse(FaultEncoding, "unknown fields")
	}
	if !encodes(m, b) {
		return refuse(FaultEncoding, "payload is not canonical")
	}
	return nil
}

// encodes tells whether b is the canonical encoding of m.
func encodes(m proto.Message, b []byte) bool {
	again, err := Encode(m)
	return err == nil && bytes.Equal(again, b)
}

// hasUnknown looks into nested messages as well. There are no maps in payloads.
func hasUnknown(m protoreflect.Message) bool {
	if len(m.GetUnknown()) > 0 {
		return true
	}
	found := false
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case fd.Message() == nil:
		case fd.IsList():
			for i := range v.List().Len() {
				found = found || hasUnknown(v.List().Get(i).Message())
			}
		default:
			found = hasUnknown(v.Message())
		}
		return !found
	})
	return found
}
