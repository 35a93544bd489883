package layout

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/policy/strict"
)

var update = flag.Bool("update", false, "rewrite golden files")

func TestFormat(t *testing.T) {
	for file, data := range corpus(t) {
		t.Run(file, func(t *testing.T) {
			out, err := Format(file, data)
			require.NoError(t, err)
			again, err := Format(file, out)
			require.NoError(t, err)
			require.Equal(t, string(out), string(again))
			require.NotContains(t, string(out), "\r")
			require.NotContains(t, string(out), " \n")
			require.NotContains(t, string(out), "\n\n\n")
			golden := filepath.Join("testdata", strings.TrimSuffix(file, ".yaml")+".golden")
			if *update {
				require.NoError(t, os.WriteFile(golden, out, 0o644))
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err)
			require.Equal(t, string(want), string(out))
		})
	}
}

// A result that is not the same file is never handed out.
func TestSame(t *testing.T) {
	s, err := Read("p", []byte("a: [b, \"c\"] # one\n# two\nd: {e: 1}\n"))
	require.NoError(t, err)
	require.NoError(t, s.same("a: [b, \"c\"] # one\n# two\nd: {e: 1}\n"))
	for out, want := range map[string]error{
		"a: [b, \"d\"] # one\n# two\nd: {e: 1}\n":     errValues,
		"a: [b, c] # one\n# two\nd: {e: 1}\n":         errValues,
		"d: {e: 1}\na: [b, \"c\"] # one\n# two\n":     errValues,
		"a: [b, \"c\"] # one\n# two\nd: {e: \"1\"}\n": errValues,
		"a: [b, \"c\"]\n# two\nd: {e: 1}\n":           errComments,
		"# two\na: [b, \"c\"] # one\nd: {e: 1}\n":     errComments,
		"a: [b,  \"c\"] # one\n# two\nd: {e: 1}\n":    errAgain,
	} {
		require.ErrorIs(t, s.same(out), want, "%s", out)
	}
	require.Error(t, s.same("a: [b"))
}

// Whatever can be read is either laid out with the same values and comments, twice
// the same, or refused.
func FuzzFormat(f *testing.F) {
	for _, data := range corpus(f) {
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 8<<10 {
			return
		}
		out, err := Format("p", data)
		if err != nil {
			require.Nil(t, out)
			return
		}
		before, err := strict.Parse("p", data, 1<<20)
		require.NoError(t, err)
		after, err := strict.Parse("p", out, 1<<20)
		require.NoError(t, err)
		require.True(t, strict.Equal(before.Root, after.Root))
		again, err := Format("p", out)
		require.NoError(t, err)
		require.Equal(t, string(out), string(again))
	})
}
