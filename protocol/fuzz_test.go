package protocol

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
)

// FuzzRun: a Reader never panics, keeps no more than one frame, sees the same in
// whatever pieces the bytes come, and what it accepts encodes to the same bytes.
// spec: FRAME-4
func FuzzRun(f *testing.F) {
	for _, v := range loadVectors(f) {
		if v.kind == "run" {
			f.Add(v.sender == "gateway", v.body)
		}
	}
	f.Fuzz(func(t *testing.T, fromGateway bool, body []byte) {
		role := Gateway
		if fromGateway {
			role = Caller
		}
		r := NewReader(bytes.NewReader(body), role)
		var again bytes.Buffer
		w := NewWriter(&again)
		used, n := 0, 0
		var err error
		for {
			var frame Frame
			if frame, err = r.Read(); err != nil {
				require.Nil(t, frame)
				break
			}
			n++
			again.Reset()
			require.NoError(t, w.WriteFrame(frame))
			used = skipIgnorable(body, used)
			require.True(t, bytes.HasPrefix(body[used:], again.Bytes()), "%T", frame)
			used += again.Len()
			require.LessOrEqual(t, len(r.buf), MaxStart+3)
		}
		pieces, err2 := readAll(NewReader(iotest.OneByteReader(bytes.NewReader(body)), role))
		require.Len(t, pieces, n)
		require.Equal(t, err, err2)
		var v *ViolationError
		if !errors.As(err, &v) {
			require.Contains(t, []error{io.EOF, io.ErrUnexpectedEOF}, err)
		}
	})
}

func skipIgnorable(b []byte, at int) int {
	for {
		l, n := protowire.ConsumeVarint(b[at:])
		num, _, _ := protowire.ConsumeTag(b[at+n:])
		if num < firstIgnorable {
			return at
		}
		at += n + int(l)
	}
}

func fuzzOnce[T any](f *testing.F, kind string, read func(io.Reader) (T, error), write func(io.Writer, T) error) {
	f.Helper()
	for _, v := range loadVectors(f) {
		if v.kind == kind {
			f.Add(v.body)
		}
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		in := bytes.NewReader(body)
		m, err := read(in)
		if err != nil {
			require.Zero(t, m)
			return
		}
		var again bytes.Buffer
		require.NoError(t, write(&again, m))
		require.Equal(t, body[:len(body)-in.Len()], again.Bytes())
	})
}

func FuzzControlRequest(f *testing.F) {
	fuzzOnce(f, "control-request", ReadControlRequest, WriteControlRequest)
}

func FuzzControlReply(f *testing.F) {
	fuzzOnce(f, "control-reply", ReadControlReply, WriteControlReply)
}

func FuzzCatalogRequest(f *testing.F) {
	fuzzOnce(f, "catalog-request", ReadCatalogRequest, WriteCatalogRequest)
}

func FuzzCatalog(f *testing.F) {
	fuzzOnce(f, "catalog", ReadCatalog, WriteCatalog)
}

func FuzzVector(f *testing.F) {
	f.Add([]byte("comment: x\nkind: catalog\nexpect: ok\n\n0200 78*3\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := parseVector(b)
		if err != nil {
			return
		}
		again, err := parseVector(v.format())
		require.NoError(t, err)
		require.Equal(t, v, again)
	})
}
