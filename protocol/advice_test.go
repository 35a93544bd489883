package protocol

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Whatever stops a caller, there is a next step: for everything but success and what
// the caller did itself.
func TestAdvice(t *testing.T) {
	t.Parallel()
	for _, c := range Codes() {
		advice := c.Advice()
		if c == CodeOK || c == CodeCancelled || c == CodeSupplanted {
			require.Empty(t, advice)
			continue
		}
		require.NotEmpty(t, advice, c)
		require.LessOrEqual(t, len(advice), 140, c)
		require.False(t, strings.HasSuffix(advice, "."), c)
		require.Equal(t, strings.ToLower(advice[:1]), advice[:1], c)
		for _, r := range advice {
			require.True(t, r >= ' ' && r <= '~', c)
		}
	}
	require.Empty(t, Code(9999).Advice())
}
