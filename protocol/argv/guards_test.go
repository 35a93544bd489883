package argv_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/protocol/argv"
)

// TestEveryLookAlike: each character that acts or that a system may fold, by itself.
func TestEveryLookAlike(t *testing.T) {
	t.Parallel()
	g := compile(t, `{arguments: [say], parameters: {word: {flag: --word, free_text: true}}}`)
	fault := func(word string) argv.Fault {
		_, err := g.Parse([]string{"--word=" + word})
		if err == nil {
			return ""
		}
		var e *argv.Error
		require.ErrorAs(t, err, &e)
		return e.Kind
	}
	require.Empty(t, fault("plain"))
	for _, c := range []string{"\u2028", "\u2029", "\ufeff", "\x1b", "\x7f", "\u009b", "\u202e", "\u2066", "\x00"} {
		require.Equal(t, argv.FaultControl, fault("a"+c+"b"), "%q", c)
	}
	for _, at := range []string{"@", "\uff20", "\ufe6b"} {
		require.Equal(t, argv.FaultFile, fault(at+"etc/passwd"), "%q", at)
		require.Equal(t, argv.FaultFile, fault("key="+at+"etc/passwd"), "%q", at)
	}
	for _, dash := range []string{"\u2010", "\u2013", "\u2014", "\u2212", "\u00ad", "\uff0d", "\ufe63"} {
		require.Equal(t, argv.FaultOption, fault(dash+"x"), "%q", dash)
	}
}
