package broker

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAsksHelp(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args  []string
		about []string
		asks  bool
	}{
		{nil, nil, true},
		{[]string{"--help"}, nil, true},
		{[]string{"-h"}, nil, true},
		{[]string{"help"}, nil, true},
		{[]string{"help", "issue"}, []string{"issue"}, true},
		{[]string{"issue", "list", "--help"}, []string{"issue", "list"}, true},
		{[]string{"issue", "--limit", "5", "-h"}, nil, true},
		{[]string{"issue", "help"}, nil, false},
		{[]string{"issue", "list"}, nil, false},
		{[]string{"--limit", "5"}, nil, false},
	} {
		about, asks := asksHelp(c.args)
		require.Equal(t, c.asks, asks, c.args)
		require.Len(t, about, len(c.about), c.args)
		for i := range c.about {
			require.Equal(t, c.about[i], about[i], c.args)
		}
	}
}
