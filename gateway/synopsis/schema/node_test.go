package schema_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/gateway/synopsis/schema"
)

func TestPlaced(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]schema.Place{
		`{"flag":"--a","aliases":["-a"],"separator":","}`: {Flag: "--a", Aliases: []string{"-a"}, Separator: ","},
		`{"position":2}`: {Position: 2}, `{"stdin":true}`: {Stdin: true}, `{"rest":true}`: {Rest: true}, `{}`: {},
	} {
		var n schema.Node
		require.NoError(t, json.Unmarshal([]byte(`{"x-lend-place":`+text+`}`), &n))
		got, ok := n.Placed()
		require.True(t, ok, text)
		require.Equal(t, want, got)
	}
	for _, text := range []string{`{}`, `{"x-lend-place":null}`, `{"x-lend-place":"--a"}`, `{"x-lend-place":{"position":"1"}}`, `{"x-lend-place":{"flag":"--a","position":1e30}}`} {
		var n schema.Node
		require.NoError(t, json.Unmarshal([]byte(text), &n))
		got, ok := n.Placed()
		require.False(t, ok, text)
		require.Zero(t, got)
	}
}

func TestBare(t *testing.T) {
	t.Parallel()
	for pattern, want := range map[string]string{"": "", "a": "a", "^(?:a|b)$": "a|b", "^(?:a": "^(?:a", "a)$": "a)$", "^(?:)$": "", "^(?:^(?:a)$)$": "^(?:a)$"} {
		n := schema.Node{Pattern: pattern}
		require.Equal(t, want, n.Bare(), pattern)
	}
}
