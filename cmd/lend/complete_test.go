package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

// completed is what a shell would offer, and the directive.
func completed(t *testing.T, args ...string) ([]string, string) {
	t.Helper()
	var out, errs bytes.Buffer
	a := newApp(append([]string{"__complete"}, args...), strings.NewReader("never read"), &out, &errs)
	require.Zero(t, run(t.Context(), a), errs.String())
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.NotEmpty(t, lines)
	return lines[:len(lines)-1], lines[len(lines)-1]
}

// Completion makes nothing: not where there is nothing yet, and no file of its own.
func TestCompletionMakesNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "none")
	t.Setenv("LEND_DIR", dir)
	t.Setenv("LEND_LEASE_FILE", "")
	t.Setenv("LEND_LEASE", "")
	for _, args := range [][]string{
		{"connector", "show", ""},
		{"connector", "show", "--version", ""},
		{"connector", "try", "--peer", ""},
		{"connector", "try", "--peer", "x", "fx", ""},
		{"connector", "shim", "remove", ""},
		{"connector", "secret", "set", "fx", ""},
		{"connector", "secret", "set", "--connection", ""},
		{"lease", "issue", "--to", ""},
		{"lease", "revoke", "--lease", ""},
		{"policy", "who-can", ""},
		{"ops", "show", ""},
		{"run", ""},
		{"run", "fx", ""},
		{"serve", ""},
	} {
		got, directive := completed(t, args...)
		require.Empty(t, got, args)
		require.Equal(t, ":4", directive, args) // no files either
	}
	require.NoDirExists(t, dir)
	got, directive := completed(t, "connector", "add", "")
	require.Empty(t, got)
	require.Equal(t, ":0", directive, "files")
}

// What is offered of another's text cannot act on a terminal, nor be read as more
// than one completion.
func TestCompletionEscapesTextOfOthers(t *testing.T) {
	t.Parallel()
	require.Equal(t, "key\ta red b c", described("key", "a red\tb\n  c"))
	got := described("key", "\x1b[31mred\u202e\x07\nevil\tline")
	word, text, found := strings.Cut(got, "\t")
	require.True(t, found)
	require.Equal(t, "key", word)
	require.NotContains(t, text, "\x1b")
	require.NotContains(t, text, "\u202e")
	require.NotContains(t, text, "\n")
	require.NotContains(t, text, "\t")
	long := described("key", strings.Repeat("é", 500))
	require.Len(t, []rune(strings.TrimPrefix(long, "key\t")), maxDescription)
	require.Equal(t, "key", described("key", " \n"))

	var many []string
	for i := range 3 * maxCompletions {
		many = append(many, string(rune('a'+i%26))+strings.Repeat("x", i%100))
	}
	require.LessOrEqual(t, len(those(many, "")), maxCompletions)
	require.Equal(t, []string{"ab", "ac"}, those([]string{"ac", "b", "ab", "ac"}, "a"))
}

// A lease that is a pipe, a directory or far too large keeps nobody waiting.
func TestCompletionReadsOnlyFiles(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("LEND_DIR", dir)
	t.Setenv("LEND_LEASE", "")
	for _, path := range []string{dir, pipeIn(t, dir), os.DevNull, "-", filepath.Join(dir, "absent")} {
		t.Setenv("LEND_LEASE_FILE", path)
		got, _ := completed(t, "run", "")
		require.Empty(t, got, path)
		got, _ = completed(t, "run", "--lease", path, "")
		require.Empty(t, got, path)
	}
}

// Every argument that names something here is completed, and no command is without.
func TestEveryCommandCompletes(t *testing.T) {
	t.Parallel()
	root := newApp(nil, nil, nil, nil).root()
	known := []string{"KEY", "COMMAND", "KEY/COMMAND", "ID", "NAME", "ARGUMENTS", "VALUE"}
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			walk(sub)
		}
		if c.HasSubCommands() || strings.HasPrefix(c.CommandPath(), "lend completion") || c.Name() == "help" {
			return
		}
		require.True(t, c.ValidArgsFunction != nil || len(c.ValidArgs) > 0, c.CommandPath())
		for _, arg := range argumentsOf(c.Use) {
			for _, word := range []string{"KEY", "COMMAND", "ID"} {
				if strings.Contains(arg.name, word) {
					require.True(t, slices.Contains(known, arg.name), "%s: %s", c.CommandPath(), arg.name)
				}
			}
		}
	}
	walk(root)
}
