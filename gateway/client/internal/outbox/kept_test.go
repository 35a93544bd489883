package outbox

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lendcli/lend/protocol"
)

// fill makes the bytes of an input from offset on, which tell their place.
func fill(b []byte, offset uint64) {
	for i := range b {
		v := offset + uint64(i)
		b[i] = byte(v ^ v>>8 ^ v>>16)
	}
}

// TestKeptIsTheInput: whatever is read, sent, forgotten and begun anew in whatever order,
// a frame has the bytes that the input has there, also while others are read.
func TestKeptIsTheInput(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var k kept
		var base, end, sending uint64 // sending and what follows are one frame
		var frame []byte
		check := func() {
			want := make([]byte, len(frame))
			fill(want, sending)
			require.True(t, bytes.Equal(want, frame))
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 4).Draw(t, "step") {
			case 0, 1: // read
				b := k.space(rapid.IntRange(1, 80_000).Draw(t, "limit"))
				require.NotEmpty(t, b)
				n := rapid.IntRange(0, len(b)).Draw(t, "n")
				pass := rapid.IntRange(0, n).Draw(t, "pass") * rapid.IntRange(0, 1).Draw(t, "passes")
				fill(b[:n], end-uint64(pass))
				if rapid.Bool().Draw(t, "forgets meanwhile") {
					base = end
					k.forget(base)
				}
				k.add(end, n, pass)
				end += uint64(n - pass)
			case 2: // send
				if base == end {
					continue
				}
				k.sent()
				sending = base + rapid.Uint64Range(0, end-base-1).Draw(t, "from")
				buf, n := k.frame(sending)
				require.Positive(t, n)
				require.LessOrEqual(t, n, protocol.MaxData)
				start := protocol.PutDataHeader(buf, 0, sending, n)
				require.GreaterOrEqual(t, start, 0)
				frame = buf[protocol.DataHeaderMax:][:n]
			case 3: // acknowledged
				base += rapid.Uint64Range(0, end-base).Draw(t, "acknowledged")
				k.forget(base)
			case 4: // begins anew
				k.clear()
				end += rapid.Uint64Range(0, 100).Draw(t, "gap")
				base = end
			}
			check()
		}
	})
}

// TestBulkIsSentWhereItWasRead: input that comes in large pieces is not copied, whatever
// comes while it is written.
func TestBulkIsSentWhereItWasRead(t *testing.T) {
	var k kept
	for i := range 8 {
		offset := uint64(i * protocol.MaxData)
		b := k.space(protocol.MaxWindow)
		require.Len(t, b, protocol.MaxData)
		k.add(offset, len(b), 0)
		buf, n := k.frame(offset)
		require.Equal(t, protocol.MaxData, n)
		require.Same(t, &b[0], &buf[protocol.DataHeaderMax])
		k.forget(offset + uint64(n)) // acknowledged before the write returns
		require.NotSame(t, &b[0], &k.space(1)[0], "it is being written")
		k.sent()
	}
	require.Empty(t, k.chunks)
}

// TestSmallInputSharesAChunk: bytes that come one by one do not hold a frame each.
func TestSmallInputSharesAChunk(t *testing.T) {
	var k kept
	for i := range 40_000 {
		require.NotEmpty(t, k.space(protocol.MaxWindow))
		k.add(uint64(i), 1, 0)
	}
	require.Len(t, k.chunks, 1)
	_, n := k.frame(10)
	require.Equal(t, 40_000-10, n)
}
