package native

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/protocol"
	"github.com/lendcli/lend/protocol/argv"
	"github.com/lendcli/lend/protocol/name"
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func entry(command, schema string) protocol.CatalogEntry {
	return protocol.CatalogEntry{
		Connector: must(name.ParseConnectorKey("gh")), Version: must(name.ParseVersion("1")),
		Command: must(name.ParseCommand(command)), InputSchema: json.RawMessage(schema),
	}
}

// What a gateway says of fixed arguments is what its own grammar writes; anything that
// cannot be read is none.
func TestWords(t *testing.T) {
	var d argv.Declaration
	require.NoError(t, json.Unmarshal([]byte(`{"arguments":["issue","list","--json=x"]}`), &d))
	c, err := d.Command(must(name.ParseCommand("issue.list")))
	require.NoError(t, err)
	g, err := c.Compile(argv.Contract{Command: "gh"})
	require.NoError(t, err)
	require.Equal(t, []string{"issue", "list", "--json=x"}, WordsOf(entry("a", string(g.InputSchema()))))
	for schema, want := range map[string][]string{
		``: nil, `false`: nil, `{}`: nil, `[]`: nil, `{"x-lend-arguments":"a"}`: nil, `{"x-lend-arguments":[1]}`: nil, `{"x-lend-arguments":null}`: nil,
		`{"x-lend-arguments":[""]}`: {""}, `{"allOf":[{},{"x-lend-arguments":["a"]}]}`: {"a"},
		`{"x-lend-arguments":[` + strings.Repeat(`"a",`, maxWords) + `"a"]}`: nil,
	} {
		require.Equal(t, want, WordsOf(entry("a", schema)), schema)
	}
}

func TestChoose(t *testing.T) {
	key := must(name.ParseConnectorKey("gh"))
	of := func(command string, words ...string) Line { return Line{words, entry(command, `{}`)} }
	all := []Line{of("issue.list", "issue", "list"), of("issue.closed", "issue", "list", "--state=closed"), of("api", "api\u202e")}
	at, args, err := Choose(all, key, []string{"issue", "list", "--limit", "5"})
	require.NoError(t, err)
	require.Equal(t, "issue.list", all[at].Entry.Command.String())
	require.Equal(t, []string{"--limit", "5"}, args)

	var not *NotOneError
	_, _, err = Choose(all, key, []string{"issue", "list", "--state=closed"})
	require.ErrorAs(t, err, &not)
	require.Equal(t, protocol.CodeDenied, not.Refusal.Code)
	require.Equal(t, []string{"issue list", "issue list --state=closed (issue.closed)"}, not.Lent)
	for _, line := range [][]string{nil, {"issue"}, {"Issue", "list"}, {"issue list"}, {"pr", "list"}, {"--help"}} {
		_, _, err = Choose(all, key, line)
		require.ErrorAs(t, err, &not)
		require.Equal(t, protocol.CodeCommandUnknown, not.Refusal.Code, line)
		require.Len(t, not.Lent, 3)
		require.NotContains(t, err.Error(), "\u202e")
	}
	_, _, err = Choose(nil, key, []string{"x"})
	require.ErrorContains(t, err, "nothing of it is lent now")
	// no fixed arguments: any line means it, so beside others none is sure
	_, _, err = Choose(append(all, of("any")), key, []string{"issue", "list"})
	require.ErrorAs(t, err, &not)
	require.Equal(t, protocol.CodeDenied, not.Refusal.Code)
	at, args, err = Choose([]Line{of("any")}, key, []string{"x"})
	require.NoError(t, err)
	require.Zero(t, at)
	require.Equal(t, []string{"x"}, args)
	var many []Line
	for i := range 30 {
		many = append(many, of("c"+string(rune('a'+i%26))+strings.Repeat("x", i), "w"+strings.Repeat("x", i)))
	}
	_, _, err = Choose(many, key, nil)
	require.ErrorAs(t, err, &not)
	require.Len(t, not.Lent, maxListed+1)
	require.Equal(t, "and 10 more", not.Lent[maxListed])
}
