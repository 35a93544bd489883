package argv_test

import (
	"strings"
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

// refusal is the error of Parse, nil if it accepts.
func refusal(t *testing.T, g *argv.Grammar, args ...string) *argv.Error {
	t.Helper()
	_, err := g.Parse(args)
	if err == nil {
		return nil
	}
	var e *argv.Error
	require.ErrorAs(t, err, &e)
	return e
}

// TestWhatIsSaidIsBounded: the argument with which all together are too large is
// named, and none is looked at further.
func TestWhatIsSaidIsBounded(t *testing.T) {
	t.Parallel()
	g := compile(t, `{arguments: [say], rest: {max_items: 9, pattern: "[a-z]*"}}`)
	quarter := strings.Repeat("a", argv.MaxTotal/2-1)
	require.Equal(t, &argv.Error{Kind: argv.FaultTooLarge, Index: 4}, refusal(t, g, quarter, quarter, quarter, quarter, "A"))
	require.Equal(t, argv.FaultValue, refusal(t, g, quarter, quarter, quarter, "A", "a").Kind)
}

// TestEmptyPath: what may be empty is a path all the same.
func TestEmptyPath(t *testing.T) {
	t.Parallel()
	g := compile(t, `{arguments: [say], parameters: {a: {flag: --a, kind: path, min_length: 0}}}`)
	require.Equal(t, argv.FaultPath, refusal(t, g, "--a=").Kind)
	require.Nil(t, refusal(t, g, "--a=x"))
}

// TestDigitsAreBounded: of each part, zeros that would be dropped included.
func TestDigitsAreBounded(t *testing.T) {
	t.Parallel()
	g := compile(t, `{arguments: [say], parameters: {a: {flag: --a, type: number}}}`)
	call, err := g.Parse([]string{"--a=1." + strings.Repeat("0", 32)})
	require.NoError(t, err)
	require.Equal(t, []string{"say", "--a=1"}, call.Arguments)
	require.Equal(t, argv.FaultNumber, refusal(t, g, "--a=1."+strings.Repeat("0", 33)).Kind)
	for _, whole := range []string{"9007199254740992", "10000000000000000", strings.Repeat("9", 19), strings.Repeat("1", 32)} {
		require.Equal(t, argv.FaultNumber, refusal(t, g, "--a="+whole).Kind, whole)
		require.Equal(t, argv.FaultNumber, refusal(t, g, "--a=-"+whole).Kind, whole)
	}
	require.Nil(t, refusal(t, g, "--a=9007199254740991"))
	require.Nil(t, refusal(t, g, "--a=999999999999999"))
}

// TestItemsThatNothingJoins are not a file reference together.
func TestItemsThatNothingJoins(t *testing.T) {
	t.Parallel()
	g := compile(t, `{arguments: [say], parameters: {
	  a: {flag: --a, repeat: 2, free_text: true}, b: {flag: --b, separator: ":", max_items: 2, free_text: true}}}`)
	require.Nil(t, refusal(t, g, "--a=file", "--a=:/etc/passwd"))
	require.Equal(t, argv.FaultFile, refusal(t, g, "--b=file:/etc/passwd").Kind)
	require.Nil(t, refusal(t, g, "--b=file:etc"))
}
