//go:build linux

package presets

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/e2e/rig"
)

// What a program in the place of the CLI gets is the canonical spelling of each call,
// byte for byte, and no trick starts it. lark-cli itself is not to be had from a
// package, so this is what its preset is tried with.
func TestRecorder(t *testing.T) {
	rig.Need(t)
	fixed := regexp.MustCompile(`(?m)^      arguments: \[`)
	record := func(s string) string {
		return fixed.ReplaceAllString(wanted.ReplaceAllString(s, "}"), "      arguments: [args, ")
	}
	for file, c := range map[string]struct {
		key, version string
		show         []string
	}{
		"gh.txt":             {"github", "2.23.0", []string{"gh", "--set", "repo=acme/site"}},
		"stripe.txt":         {"stripe", "1.52.0", []string{"stripe"}},
		"stripe-account.txt": {"stripe", "1.52.0", []string{"stripe", "--set", "account=acct_1AbCdEfGhIjKlMnO"}},
		"lark.txt": {"lark", "1.0.96", []string{
			"lark", "--set", "calendar=primary", "--set", "tasks=mine", "--set", "chat=oc_0123456789abcdef", "--set", "doc=DoxcnAbCdEfGhIjKlMnOp",
			"--set", "base=BascnAbCdEfGhIjKlMnOp", "--set", "table=tblAbCdEfGhIjKl",
		}},
	} {
		t.Run(file[:len(file)-len(filepath.Ext(file))], func(t *testing.T) {
			starts := filepath.Join(t.TempDir(), "starts")
			l := lendRecorder(t, c.key, c.version, starts, record, c.show)
			calls := corpus(t, file)
			n := 0
			for _, c := range calls {
				if c.code != "" {
					continue
				}
				n++
				status, stdout, stderr := l.run(t, c)
				require.Zero(t, status, "%s: %s", c.at, stderr)
				var got []string
				require.NoError(t, json.Unmarshal([]byte(stdout), &got))
				require.Equal(t, c.argv, got, c.at)
			}
			require.Equal(t, n, lines(t, starts))
			l.refused(t, calls, func() int { return lines(t, starts) - n })
		})
	}
}

// wanted is what a test of a preset says of the arguments, which do not hold for the
// recorder.
var wanted = regexp.MustCompile(`, argv: \[[^\n]*\]\}`)
