package wire

import (
	"bytes"
	"encoding/binary"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func fields(parts ...any) (b []byte) {
	for i := 0; i < len(parts); i += 2 {
		b = appendField(b, byte(parts[i].(int)), parts[i+1].(string))
	}
	return b
}

func TestHeader(t *testing.T) {
	t.Parallel()
	for _, k := range []Kind{KindCall, KindRun, KindControl, KindExit} {
		got, n, err := ParseHeader(Header(k, MaxPayload))
		require.NoError(t, err)
		require.Equal(t, k, got)
		require.Equal(t, MaxPayload, n)
		_, _, err = ParseHeader(Header(k, MaxPayload+1))
		require.ErrorIs(t, err, ErrMalformed)
	}
	_, _, err := ParseHeader(Header(KindCancel, 0))
	require.NoError(t, err)
	for name, b := range map[string][]byte{
		"empty":           nil,
		"short":           {1, 'C', 0, 0, 0},
		"long":            append(Header(KindCall, 1), 0),
		"version":         {2, 'C', 0, 0, 0, 1},
		"kind":            {1, 'Z', 0, 0, 0, 1},
		"cancel-payload":  Header(KindCancel, 1),
		"answer-too-long": Header(KindAnswer, MaxAnswer+1),
		"huge":            {1, 'C', 0xff, 0xff, 0xff, 0xff},
	} {
		_, _, err := ParseHeader(b)
		require.ErrorIs(t, err, ErrMalformed, name)
	}
}

func TestCall(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]Call{
		"nothing":         {},
		"shim":            {Session: "abc", Name: "gh", Args: []string{"issue", "list", "", "\xff\x00"}},
		"empty-authority": {Name: "gh", HasAuthority: true},
		"authority":       {Name: "gh", HasAuthority: true, Authority: "caller"},
		"run":             {Lease: []byte("lease"), Options: []byte("{}"), Args: []string{strings.Repeat("a", MaxArgument)}},
	} {
		b, err := c.Append(nil)
		require.NoError(t, err, name)
		got, err := ParseCall(b)
		require.NoError(t, err, name)
		require.Equal(t, c, got, name)
	}
}

func TestCallRefuses(t *testing.T) {
	t.Parallel()
	for name, b := range map[string][]byte{
		"no-length":     {1, 0, 0},
		"short":         {1, 0, 0, 0, 2, 'a'},
		"overflow":      {1, 0xff, 0xff, 0xff, 0xff, 'a'},
		"unknown":       fields(99, "x"),
		"zero-tag":      fields(0, "x"),
		"twice":         fields(1, "x", 1, "x"),
		"order":         fields(2, "x", 1, "x"),
		"after-args":    fields(6, "x", 5, "x"),
		"empty-session": fields(1, ""),
		"empty-name":    fields(2, ""),
		"empty-lease":   fields(4, ""),
		"long-name":     fields(2, strings.Repeat("x", 257)),
		"long-lease":    fields(4, strings.Repeat("x", MaxLease+1)),
		"long-argument": fields(6, strings.Repeat("x", MaxArgument+1)),
		"long-in-all":   fields(6, strings.Repeat("x", MaxArgument), 6, strings.Repeat("x", MaxArgument), 6, "xyz"),
		"many":          bytes.Repeat(fields(6, ""), MaxArguments+1),
		"trailing":      append(fields(1, "x"), 0),
	} {
		c, err := ParseCall(b)
		require.ErrorIs(t, err, ErrMalformed, name)
		require.Zero(t, c, name)
	}
	for name, c := range map[string]Call{
		"name":     {Name: strings.Repeat("x", 257)},
		"argument": {Args: []string{strings.Repeat("x", MaxArgument+1)}},
		"all":      {Args: []string{strings.Repeat("x", MaxArgument), strings.Repeat("x", MaxArgument), "xyz"}},
		"many":     {Args: make([]string, MaxArguments+1)},
	} {
		_, err := c.Append(nil)
		require.ErrorIs(t, err, ErrMalformed, name)
	}
	b, err := (&Call{Args: make([]string, MaxArguments)}).Append(nil)
	require.NoError(t, err)
	require.Less(t, len(b)+MaxArgumentBytes+MaxLease+maxText+4*maxWord, MaxPayload, "the largest call fits into a frame")
}

func TestExit(t *testing.T) {
	t.Parallel()
	for name, e := range map[string]Exit{
		"success": {Ended: true},
		"unknown": {Status: 255, Message: "m", Hint: "h"},
		"detail":  {Status: 7, Ended: true, Detail: []byte("{}")},
		"nothing": {},
	} {
		got, err := ParseExit(e.Append(nil))
		require.NoError(t, err, name)
		require.Equal(t, e, got, name)
	}
	require.Equal(t, 0, (&Exit{Ended: true}).Returns())
	require.Equal(t, 255, (&Exit{}).Returns(), "no end is no success")
	require.Equal(t, 126, (&Exit{Status: 126}).Returns())
	long := Exit{Status: 1, Message: strings.Repeat("m", maxText+1), Detail: make([]byte, maxDetail+1)}
	got, err := ParseExit(long.Append(nil))
	require.NoError(t, err)
	require.Len(t, got.Message, maxText)
	require.Empty(t, got.Detail)
}

func TestExitRefuses(t *testing.T) {
	t.Parallel()
	for name, b := range map[string][]byte{
		"empty":           {},
		"no-status":       fields(3, "m"),
		"status-empty":    fields(1, ""),
		"status-long":     fields(1, "ab"),
		"status-twice":    fields(1, "a", 1, "a"),
		"ended-with-text": fields(1, "a", 2, "x"),
		"order":           fields(1, "a", 4, "x", 3, "x"),
		"empty-message":   fields(1, "a", 3, ""),
		"unknown":         fields(1, "a", 9, "x"),
		"short":           {1, 0, 0, 0, 1},
	} {
		e, err := ParseExit(b)
		require.ErrorIs(t, err, ErrMalformed, name)
		require.Equal(t, 255, e.Returns(), name)
	}
}

// A length that lies makes nobody allocate for it.
func TestNothingIsAllocatedForALie(t *testing.T) {
	b := binary.BigEndian.AppendUint32([]byte{tagLease}, MaxLease)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 1000 {
		_, err := ParseCall(b)
		require.ErrorIs(t, err, ErrMalformed)
	}
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20))
}

// What is accepted re-encodes to the same bytes.
func FuzzCall(f *testing.F) {
	for _, c := range []Call{{}, {Session: "s", Name: "gh", Args: []string{"a", ""}}, {HasAuthority: true}, {Lease: []byte("l"), Options: []byte("{}")}} {
		b, err := c.Append(nil)
		require.NoError(f, err)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := ParseCall(b)
		if err != nil {
			require.Zero(t, c)
			return
		}
		again, err := c.Append(nil)
		require.NoError(t, err)
		require.True(t, bytes.Equal(b, again))
	})
}

func FuzzExit(f *testing.F) {
	f.Add((&Exit{Ended: true}).Append(nil))
	f.Add((&Exit{Status: 3, Message: "m", Hint: "h", Detail: []byte("d")}).Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := ParseExit(b)
		if err != nil {
			require.Zero(t, e)
			return
		}
		require.True(t, bytes.Equal(b, e.Append(nil)))
	})
}
