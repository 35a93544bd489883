package audit

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/gateway/ledger"
)

func TestNoted(t *testing.T) {
	t.Parallel()
	b, err := Noted{Rule: "read", Policy: "ab", Workspace: "w", Purpose: `"p"`}.Encode()
	require.NoError(t, err)
	require.JSONEq(t, `{"rule":"read","policy":"ab","workspace":"w","purpose":"\"p\""}`, string(b))
	b, err = Noted{
		Arguments: []string{"list", "a\x1b[2Jb", `"quoted"`, "", "\u202e", strings.Repeat("x", 1030)},
		Variables: map[string]string{"A": "1\n"},
	}.Encode()
	require.NoError(t, err)
	var n Noted
	require.NoError(t, json.Unmarshal(b, &n))
	require.Equal(t, []string{"list", `"a\x1b[2Jb"`, `"\"quoted\""`, "", `"\u202e"`, strings.Repeat("x", 1024) + "... (6 bytes more)"}, n.Arguments)
	require.Equal(t, map[string]string{"A": `"1\n"`}, n.Variables)

	// The worst that there can be still fits, and says what is missing.
	worst := make([]string, 256)
	for i := range worst {
		worst[i] = strings.Repeat("\U0010ffff", 500)
	}
	variables := map[string]string{"A": worst[0], "B": worst[0]}
	b, err = Noted{Rule: strings.Repeat("r", 100), Arguments: worst, Variables: variables}.Encode()
	require.NoError(t, err)
	require.LessOrEqual(t, len(b), ledger.MaxAudit)
	n = Noted{}
	require.NoError(t, json.Unmarshal(b, &n))
	require.Regexp(t, `^\.\.\. \(2\d\d arguments more\)$`, n.Arguments[len(n.Arguments)-1])
	require.Equal(t, "1 byte", counted(1, "byte"))
	require.Equal(t, "0 bytes", counted(0, "byte"))
	require.Len(t, worst[0], 2000, "what was given is not changed")
	_, err = Noted{Purpose: strings.Repeat("x", ledger.MaxAudit)}.Encode()
	require.Error(t, err)
}
