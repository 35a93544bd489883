package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write generated files again")

const (
	cliDoc     = "../../docs/cli.md"
	readmeFile = "../../README.md"
)

// TestDocs keeps docs/cli.md equal to the help texts.
func TestDocs(t *testing.T) {
	var out bytes.Buffer
	out.WriteString("# Command line\n\nMade from the help texts; every command takes `--json` and `--dir DIR`.\n")
	root := newApp(nil, strings.NewReader(""), &out, &out).root()
	walk(root, func(c *cobra.Command) {
		if c.Hidden || c.Name() == "help" || c.Parent() != nil && c.Parent().Name() == "completion" {
			return
		}
		fmt.Fprintf(&out, "\n## %s\n\n", c.CommandPath())
		text := c.Long
		if text == "" {
			text = c.Short
		}
		fmt.Fprintf(&out, "```text\n%s\n\n%s```\n", strings.TrimSpace(text), usage(c))
	})
	if *update {
		require.NoError(t, os.WriteFile(cliDoc, out.Bytes(), 0o600))
	}
	got, err := os.ReadFile(cliDoc)
	require.NoError(t, err)
	require.Equal(t, out.String(), string(got), "run: go test ./cmd/lend -run TestDocs -update")
}

// TestReadmeDemo keeps the session in the README equal to what lend demo prints,
// but for times.
func TestReadmeDemo(t *testing.T) {
	var out, errs bytes.Buffer
	require.Zero(t, run(t.Context(), newApp([]string{"demo"}, strings.NewReader(""), &out, &errs)), "%s", errs.String())
	readme, err := os.ReadFile(readmeFile)
	require.NoError(t, err)
	const begin, end = "<!-- demo -->\n```text\n", "```\n<!-- /demo -->"
	head, rest, ok := strings.Cut(string(readme), begin)
	require.True(t, ok)
	block, tail, ok := strings.Cut(rest, end)
	require.True(t, ok)
	if *update {
		require.NoError(t, os.WriteFile(readmeFile, []byte(head+begin+out.String()+end+tail), 0o600))
		return
	}
	times := regexp.MustCompile(`[0-9.]+ (ms|s)\b`)
	require.Equal(t, times.ReplaceAllString(out.String(), "N $1"), times.ReplaceAllString(block, "N $1"))
}

// TestReadmeCommands looks whether each command of the README exists with those
// flags and takes that many arguments.
func TestReadmeCommands(t *testing.T) {
	readme, err := os.ReadFile(readmeFile)
	require.NoError(t, err)
	n := 0
	for line := range strings.Lines(string(readme)) {
		line, _, _ = strings.Cut(strings.TrimSpace(line), "#")
		for part := range strings.SplitSeq(line, "&&") {
			args := strings.Fields(part)
			if len(args) < 2 || args[0] != "lend" {
				continue
			}
			n++
			args = slices.DeleteFunc(args[1:], func(s string) bool { return s == "<" })
			var out bytes.Buffer
			root := newApp(nil, strings.NewReader(""), &out, &out).root()
			c, rest, err := root.Find(args)
			require.NoError(t, err, "%s", part)
			group := c.HasSubCommands() && !c.LocalNonPersistentFlags().HasFlags() // one with flags does something itself
			require.True(t, c.Runnable() && !group, "%s", part)
			require.NoError(t, c.ParseFlags(rest), "%s", part)
		}
	}
	require.Greater(t, n, 8, "the README has commands")
}

func usage(c *cobra.Command) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Usage:\n  %s\n", c.UseLine())
	if c.HasAvailableSubCommands() {
		b.WriteString("\nCommands:\n")
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() {
				fmt.Fprintf(&b, "  %-12s %s\n", sub.Name(), sub.Short)
			}
		}
	}
	if c.Example != "" {
		fmt.Fprintf(&b, "\nExamples:\n%s\n", c.Example)
	}
	if f := c.LocalNonPersistentFlags().FlagUsages(); f != "" {
		fmt.Fprintf(&b, "\nFlags:\n%s", f)
	}
	return b.String()
}

func walk(c *cobra.Command, f func(*cobra.Command)) {
	f(c)
	for _, sub := range c.Commands() {
		walk(sub, f)
	}
}

// Every command that does something has an example, and its help fits a terminal.
func TestHelp(t *testing.T) {
	root := newApp(nil, strings.NewReader(""), &bytes.Buffer{}, &bytes.Buffer{}).root()
	walk(root, func(c *cobra.Command) {
		if c.Hidden || c.Name() == "help" || strings.Contains(c.CommandPath(), "completion") {
			return
		}
		t.Run(strings.ReplaceAll(c.CommandPath(), " ", "-"), func(t *testing.T) {
			require.NotEmpty(t, c.Short)
			if !c.HasSubCommands() {
				require.NotEmpty(t, c.Example)
			}
			for line := range strings.Lines(c.Long + "\n" + c.UsageString()) {
				if use := strings.TrimSpace(line); use != c.UseLine() && !strings.HasPrefix(use, `Use "`) {
					require.LessOrEqual(t, utf8.RuneCountInString(strings.TrimRight(line, "\n")), 80, "%q", line)
				}
			}
		})
	})
}
