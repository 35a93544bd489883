package door

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/policy"
)

// TestDebtsAreBounded: each side of each bound of a penalty.
func TestDebtsAreBounded(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	floor := 3 * denialCost
	for title, c := range map[string]struct {
		before debt
		floor  time.Duration
		rest   time.Duration
	}{
		"what wore off in a quick row does not shorten it": {debt{owed: now.Add(floor - denialCost - time.Second), last: now}, floor, floor},
		"who has been refused for ever is refused again":   {debt{times: 70, last: now}, denialCost, penaltyCap},
		"one denial costs no more than the longest":        {debt{times: 10, last: now}, penaltyCap + 2*denialCost, 0},
	} {
		d := c.before
		d.deny(now, c.floor, penaltyCap)
		require.Equal(t, c.rest, d.rest(now), title)
	}
}

// TestNothingIsLentFromTheReserve: a limit of one peer above that of all adds nothing.
func TestNothingIsLentFromTheReserve(t *testing.T) {
	t.Parallel()
	require.Zero(t, reserve(policy.Limits{Operations: 10, OperationsPerPeer: 20}))
}
