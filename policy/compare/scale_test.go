package compare

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/policy"
	"github.com/lendcli/lend/protocol/name"
)

// A large file is compared in a second; on a machine that is busy it takes longer.
func TestLargeFiles(t *testing.T) {
	var head, rules strings.Builder
	head.WriteString("policy: 1\nissuers: {owner: {id: " + ownerID + ", connectors: any}, desk: {id: " + deskID + ", connectors: any, holders: any}}\npeers:\n")
	for n := range 400 {
		sum := sha256.Sum256(fmt.Append(nil, n))
		id, err := name.PeerIDFromKey(sum[:])
		require.NoError(t, err)
		fmt.Fprintf(&head, "  p%d: %s\n", n, id)
	}
	for n := range 150 {
		fmt.Fprintf(&rules, "  - {name: r%d, to: [p%d, p%d, p%d], connector: alpha, version: [\"1\", \"2\"], commands: {get: {repo: [a, b], n: {maximum: %d}}, put: {}, run: {}}}\n", n, n, n+200, n*7%400, n+10)
	}
	before, err := policy.Parse("old.yaml", []byte(head.String()+"allow:\n"+rules.String()))
	require.NoError(t, err)
	after, err := policy.Parse("new.yaml", []byte(head.String()+"allow:\n"+strings.ReplaceAll(rules.String(), "repo: [a, b], n", "repo: [a, b, c], n")))
	require.NoError(t, err)
	begin := time.Now()
	require.True(t, Policies(before, after, source{}).Widens())
	require.Less(t, time.Since(begin), 60*time.Second)
	t.Logf("%s", time.Since(begin))
}
