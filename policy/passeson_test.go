package policy

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/protocol/name"
)

func TestPassesOn(t *testing.T) {
	t.Parallel()
	named, err := name.PeerIDFromKey([]byte(strings.Repeat("n", 32)))
	require.NoError(t, err)
	other, err := name.PeerIDFromKey([]byte(strings.Repeat("o", 32)))
	require.NoError(t, err)
	for depth, want := range map[string]bool{"": false, ", max_depth: 0": false, ", max_depth: 1": true} {
		text := "policy: 1\nissuers:\n  owner: {id: " + other.String() + ", connectors: any, holders: any" + depth + "}\npeers:\n  n: " + named.String() + "\n"
		p, err := Parse("policy.yaml", []byte(text))
		require.NoError(t, err)
		require.Equal(t, want, p.PassesOn(named), depth)
		require.False(t, p.PassesOn(other), "a stranger: anybody could be one")
		require.False(t, p.PassesOn(name.PeerID{}))
	}
	var none *Policy
	require.False(t, none.PassesOn(named))
}
