package edit

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Many shared rules are split in one pass: the time does not grow with the square of
// their number.
func TestDenyManyRules(t *testing.T) {
	const rules = 400
	var b strings.Builder
	b.WriteString(small)
	for i := range rules {
		fmt.Fprintf(&b, "  - name: rule %d # so\n    to: [maria, agent]\n    connector: alpha\n    version: \"1\"\n    commands:\n      get: {repo: a}\n      list: {} # two\n", i)
	}
	begun := time.Now()
	r, err := run("deny to=maria alpha get", []byte(b.String()))
	took := time.Since(begun)
	require.NoError(t, err)
	require.Len(t, r.Policy.Content().Rules, 2*rules)
	require.Len(t, r.Notes, rules)
	require.Less(t, took, 30*time.Second, "it is one pass")
	t.Log(took)
}
