package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/localhost/download"
	"github.com/lendcli/lend/localhost/download/remote"
	"github.com/lendcli/lend/protocol"
)

// Each command takes as many arguments as its usage line has, and says in our words
// which one is missing or too much.
func TestArgumentsAreThoseOfTheUsageLine(t *testing.T) {
	root := newApp(nil, strings.NewReader(""), &bytes.Buffer{}, &bytes.Buffer{}).root()
	n := 0
	walk(root, func(c *cobra.Command) {
		path := c.CommandPath()
		if c.Hidden || c.HasSubCommands() || c.Name() == "help" || strings.Contains(path, "completion") || path == "lend lease delegate" {
			return // the last one takes one, or three and more
		}
		n++
		least, most := bounds(argumentsOf(c.Use))
		for args := []string{}; len(args) < 8; args = append(args, "x") {
			err := c.Args(c, args)
			if len(args) >= least && len(args) <= most {
				require.NoError(t, err, "%s with %d", path, len(args))
				continue
			}
			var usage *usageError
			require.ErrorAs(t, err, &usage, "%s with %d", path, len(args))
			require.Regexp(t, "( is| are) missing$|^unexpected argument ", usage.Error())
			require.Contains(t, usage.hint, path)
			require.NotContains(t, usage.Error(), "do not go")
		}
	})
	require.Greater(t, n, 50)
}

func TestArgumentsError(t *testing.T) {
	dir := t.TempDir()
	cases := map[string]struct {
		args []string
		want string
	}{
		"one":         {[]string{"lease", "show"}, "FILE is missing\nlend: hint: lend lease show FILE"},
		"two":         {[]string{"lease", "issue", "--to", "x"}, "KEY and COMMAND are missing\nlend: hint: lend lease issue --to PEER KEY COMMAND…"},
		"three":       {[]string{"connector", "setting", "set"}, "KEY, NAME and VALUE are missing\n"},
		"second":      {[]string{"connector", "secret", "set", "fx"}, "NAME is missing\n"},
		"alternative": {[]string{"connector", "add"}, "DIRECTORY or ARCHIVE is missing\n"},
		"required":    {[]string{"policy", "diff"}, "NEW is missing\n"},
		"none":        {[]string{"id", "\x1b"}, "unexpected argument \"\\x1b\"\nlend: hint: lend id\n"},
		"flag":        {[]string{"policy", "explain", "--peer", "x"}, "KEY and COMMAND are missing\n"},
	}
	for title, c := range cases {
		t.Run(title, func(t *testing.T) {
			code, _, errs := lend(t, dir, c.args...)
			require.Equal(t, 2, code)
			require.Contains(t, errs, "lend: error: "+c.want)
		})
	}
}

func TestCodeHint(t *testing.T) {
	require.Equal(t, "--code TIMEOUT", codeHint("timeout"))
	require.Equal(t, "--code POLICY_DENIED", codeHint("policy-denied"))
	require.Equal(t, "--code LEASE_REVOKED", codeHint("LEASE_REVOKE"))
	require.Contains(t, codeHint("FOO"), "--code OK, DENIED, ")
	require.Equal(t, len(protocol.Codes()), strings.Count(codeHint("FOO"), ",")+1)
	require.Contains(t, codeHint("FOO"), ", INTERNAL")
}

func TestFullDiskHint(t *testing.T) {
	t.Parallel()
	err := fmt.Errorf("write file: %w", &os.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC})
	for _, shown := range []error{storeError(err), orHint(err, "another value"), orHint(storeError(err), "another value"), lentShimError(err, "gh"), localShimError(paths{}, "gh", err)} {
		require.Equal(t, diskFull, hintOf(shown))
		require.ErrorIs(t, shown, syscall.ENOSPC)
	}
}

// What went wrong with an archive from elsewhere leads to what gets it.
func TestHintsOfArchives(t *testing.T) {
	for err, want := range map[error]string{
		remote.ErrRefused:    "--archive FILE",
		remote.ErrFailed:     "the same command later; or give the file: --archive FILE",
		download.ErrMismatch: "a newer manifest, or that file: --archive FILE",
	} {
		require.Contains(t, hintOf(storeError(fmt.Errorf("add connector: %w", err))), want)
	}
}
