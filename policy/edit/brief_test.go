package edit

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// What a preset allows is said in sentences that people read to their end.
func TestPresetsAreSaidBriefly(t *testing.T) {
	for which, set := range map[string]map[string][]string{
		"gh": {"repo": {"acme/site"}}, "stripe": nil, "lark": {"chat": {"oc_0123456789abcdef"}, "tasks": {"mine"}},
	} {
		r, err := Add("policy.yaml", []byte(addHead+"peers:\n  agent: "+addAgent+"\n"), part(t, which, set, newPeer("agent", "")), bare{})
		require.NoError(t, err)
		require.NotEmpty(t, r.Changes)
		for _, c := range r.Changes {
			require.Less(t, len(c.Brief), 600, c.Brief)
			require.GreaterOrEqual(t, len(c.Text), len(c.Brief)-len("… (00 in all)"))
			require.NotContains(t, c.Text, "in all)")
		}
	}
}
