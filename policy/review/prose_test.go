package review

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/policy/file"
	"github.com/lendcli/lend/protocol/argv"
)

func numbered(n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprintf("v%d", i+1))
	}
	return out
}

// People get the first of a long list and no long pattern; programs get everything.
func TestProse(t *testing.T) {
	for _, c := range []struct {
		name        string
		in          Prose
		long, brief string
	}{
		{"plain", "a b", "a b", "a b"},
		{"six", Quoted(numbered(6)), `"v1", "v2", "v3", "v4", "v5", "v6"`, `"v1", "v2", "v3", "v4", "v5", "v6"`},
		{"seven", Quoted(numbered(7)), `"v1", "v2", "v3", "v4", "v5", "v6", "v7"`, `"v1", "v2", "v3", … (7 in all)`},
		{"names", Listed(numbered(7)), "v1, v2, v3, v4, v5, v6 and v7", "v1, v2, v3, … (7 in all)"},
		{"few names", Listed(numbered(2)), "v1 and v2", "v1 and v2"},
		{"short pattern", Pattern("matching", strings.Repeat("ä", 39)+"b"), `matching "` + strings.Repeat(`\u00e4`, 39) + `b"`, `matching "` + strings.Repeat(`\u00e4`, 39) + `b"`},
		{"long pattern", Pattern("matching", strings.Repeat("a", 41)), `matching "` + strings.Repeat("a", 41) + `"`, "matching a pattern"},
		{"very long pattern", Pattern("match", strings.Repeat("a", 1000)), `match "` + strings.Repeat("a", 1000) + `"`, "match a pattern"},
		{
			"joined", "x " + Quoted(numbered(7)) + " y " + Pattern("z", strings.Repeat("a", 41)) + ".",
			`x "v1", "v2", "v3", "v4", "v5", "v6", "v7" y z "` + strings.Repeat("a", 41) + `".`, `x "v1", "v2", "v3", … (7 in all) y z a pattern.`,
		},
		{"nested", Alternative("a "+Quoted(numbered(7)), "b "+Pattern("z", strings.Repeat("a", 41))), `a "v1", "v2", "v3", "v4", "v5", "v6", "v7"`, "b z a pattern"},
		{"foreign marks", Quoted([]string{"\x02a\x03b\x04"}), `"\x02a\x03b\x04"`, `"\x02a\x03b\x04"`},
		{"foreign marks in a pattern", Pattern("z", "\x02a\x03b\x04"), `z "\x02a\x03b\x04"`, `z "\x02a\x03b\x04"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, c.long, c.in.Long())
			require.Equal(t, c.brief, c.in.Brief())
			require.Equal(t, c.long, fmt.Sprint(c.in))
			out, err := json.Marshal(map[string]Prose{"x": c.in})
			require.NoError(t, err)
			var back map[string]string
			require.NoError(t, json.Unmarshal(out, &back))
			require.Equal(t, c.long, back["x"])
		})
	}
}

// What a parameter accepts is cut for people, at each place where a list or a pattern is.
func TestValuesAreCut(t *testing.T) {
	pattern := strings.Repeat("[a-z]", 20)
	for _, s := range []argv.Schema{{Type: argv.TypeString, Enum: numbered(35)}, {Type: argv.TypeString, Pattern: pattern}} {
		v := Values(argv.Parameter{Schemas: []argv.Schema{s}, List: &argv.List{MaxItems: 9}}, file.Limits{})
		require.Greater(t, len(v.Long()), 100)
		require.Less(t, len(v.Brief()), 70)
	}
	said := parameters(argv.Command{Rest: &argv.Rest{MaxItems: 2, Pattern: pattern}}, file.Limits{})
	require.Len(t, said, 1)
	require.Equal(t, "up to 2 further arguments that match a pattern", Prose(said[0]).Brief())
	require.Contains(t, Prose(said[0]).Long(), pattern)
}
