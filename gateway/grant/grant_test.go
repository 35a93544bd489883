package grant

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/policy"
)

// kept is a surface as a ledger has it.
func kept(rule string) string {
	return fmt.Sprintf(`{"cli":"fx","command":{"effect":"read","name":"print"},"connector":"fx","contract_hash":"sha256:0","limits":%s,"rule":%q,"surface":1,"version":"1.0.0"}`, limits, rule)
}

const limits = `{"argument_bytes":1,"arguments":1,"run_seconds":1,"stderr":1,"stdin":1,"stdout":1}`

func TestEncodeAndParse(t *testing.T) {
	t.Parallel()
	one, err := policy.ParseSurface([]byte(kept("a <rule> & more")))
	require.NoError(t, err)
	two, err := policy.ParseSurface([]byte(kept("another")))
	require.NoError(t, err)
	require.Equal(t, "[]", string(Encode(nil)))
	b := Encode([]*policy.Surface{one, two})
	require.Equal(t, "["+string(one.Marshal())+","+string(two.Marshal())+"]", string(b), "their own bytes")
	var c Cache
	got, err := c.Parse(b)
	require.NoError(t, err)
	require.Len(t, got, 2)
	require.Equal(t, "another", got[1].Rule())
	again, err := c.Parse(b)
	require.NoError(t, err)
	require.Same(t, got[0], again[0])
}

// What is not a grant is an error, and nothing is an empty grant, which allows nothing.
func TestParseIsStrict(t *testing.T) {
	t.Parallel()
	var c Cache
	for _, bad := range []string{"", "{", "{}", "[{}]", "[1]", `[{"surface":1}]`, "[" + kept("a") + "] x", "[" + strings.Replace(kept("a"), `"surface":1`, `"surface":2`, 1) + "]"} {
		s, err := c.Parse([]byte(bad))
		require.Error(t, err, bad)
		require.Nil(t, s)
	}
	require.Empty(t, c.parsed)
	empty, err := c.Parse([]byte("[]"))
	require.NoError(t, err)
	require.Empty(t, empty)
}

func TestCacheIsBounded(t *testing.T) {
	t.Parallel()
	var c Cache
	for i := range most + 10 {
		_, err := c.Parse([]byte("[" + kept(fmt.Sprintf("rule %d", i)) + "]"))
		require.NoError(t, err)
		require.LessOrEqual(t, len(c.parsed), most)
	}
}
