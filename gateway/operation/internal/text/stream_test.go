package text

import (
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestPieces compares with the whole, however it is cut.
func TestPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := []byte(rapid.String().Draw(t, "text"))
		if len(all) > 0 && rapid.Bool().Draw(t, "broken") {
			all[rapid.IntRange(0, len(all)-1).Draw(t, "at")] = rapid.Byte().Draw(t, "byte")
		}
		var s Stream
		ok := true
		for rest := all; ok && len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "piece")
			ok = s.Take(rest[:n])
			rest = rest[n:]
		}
		require.Equal(t, utf8.Valid(all), ok && s.Whole())
	})
}
