package kept_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lendcli/lend/gateway/client/mcp/kept"
)

// What is kept of an output is its beginning, whole characters if it is text, and its
// bytes if it is not.
func TestKept(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) })).Draw(t, "text")
		most := rapid.IntRange(1, 40).Draw(t, "most")
		var total atomic.Uint64
		k := kept.New(most, &total)
		for rest := text; rest != ""; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "n")
			m, err := k.Write([]byte(rest[:n]))
			require.NoError(t, err)
			require.Equal(t, n, m)
			rest = rest[n:]
		}
		o := k.Output()
		require.Equal(t, uint64(len(text)), o.Bytes)
		require.Equal(t, uint64(len(text)), total.Load())
		require.Equal(t, len(text) > most, o.Truncated)
		require.Equal(t, uint64(len(text)), k.Bytes())
		require.Equal(t, min(most, len(text)), k.Shown())
		require.True(t, utf8.ValidString(k.Readable()))
		if o.Encoding == "utf-8" {
			require.True(t, strings.HasPrefix(text, o.Text))
			require.Greater(t, len(o.Text)+utf8.UTFMax, min(most, len(text)))
		}
		if utf8.ValidString(text) {
			require.Equal(t, "utf-8", o.Encoding)
		}
	})
}
