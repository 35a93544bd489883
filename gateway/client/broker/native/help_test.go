package native

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/protocol"
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

// Who asks for help and is refused is told of what begins as they say, or of all; nobody
// else is told anything.
func TestHelp(t *testing.T) {
	t.Parallel()
	all := []Line{{[]string{"issue", "list"}, entry("issue.list", `{}`)}, {[]string{"pr", "list"}, entry("pr.list", `{}`)}}
	refuse := func(args ...string) error {
		_, _, err := Choose(all, all[0].Entry.Connector, args)
		require.Error(t, err)
		return err
	}
	err := refuse("issue", "--help")
	require.ErrorContains(t, err, "; lent: ")
	require.Equal(t, all[:1], Help(all, []string{"issue", "--help"}, err))
	require.NotContains(t, err.Error(), "lent: ", "it was told")
	require.Equal(t, all, Help(all, []string{"other", "--help"}, refuse("other", "--help")))
	rejected := &protocol.Refusal{Code: protocol.CodeArgumentRejected}
	require.Equal(t, all[:1], Help(all[:1], []string{"issue", "list", "-h"}, rejected))
	for _, other := range []error{nil, errors.New("no link"), &protocol.Refusal{Code: protocol.CodeBusy}} {
		require.Empty(t, Help(all, nil, other))
	}
	err = refuse("issue")
	require.Empty(t, Help(all, []string{"issue"}, err), "it does not ask")
	require.ErrorContains(t, err, "; lent: ")
	require.Empty(t, Help(nil, nil, err))
}
