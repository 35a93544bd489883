package dial

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/protocol"
)

// What a reader's doublings cost the sender stays below half of the greatest window:
// with more lost, a long transfer stops for ever (ADR 155).
func TestWindowsLeaveTheSenderHalf(t *testing.T) {
	t.Parallel()
	const frame = 64 << 10
	lost, w := 0, initialWindow
	for ; w < maxWindow; w *= 2 {
		lost += w/2 + frame
	}
	require.Equal(t, maxWindow, w, "doubled exactly")
	require.LessOrEqual(t, lost, maxWindow/2)
	require.Greater(t, initialWindow, 2*protocol.MinWindow, "both outputs, with their frames")
}
