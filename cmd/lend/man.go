package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func (a *app) manCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "man DIR",
		Short: "write the manual pages",
		Long: `Write a manual page for each command into a directory, from the same texts as
--help. DIR is made if it is not there; pages that are there are replaced.`,
		Example: `  lend man /usr/local/share/man/man1
  lend man ./man && man ./man/lend-run.1`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			pages, err := writeManual(cmd.Root(), args[0])
			if err != nil {
				return err
			}
			return a.show(struct {
				SchemaVersion int      `json:"schemaVersion"`
				Directory     string   `json:"directory"`
				Pages         []string `json:"pages"`
			}{jsonSchema, args[0], pages}, func() error {
				return a.say("%s in %s", count(len(pages), "page", "pages"), args[0])
			})
		},
	}
}

// writeManual returns the names of the pages, in the order of the tree.
func writeManual(root *cobra.Command, dir string) (pages []string, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // for everybody to read
		return nil, fmt.Errorf("write manual: %w", err)
	}
	err = eachManual(root, func(page, text string) error {
		pages = append(pages, page)
		return os.WriteFile(filepath.Join(dir, page), []byte(text), 0o644) //nolint:gosec // likewise
	})
	if err != nil {
		return nil, fmt.Errorf("write manual: %w", err)
	}
	return pages, nil
}

// eachManual calls f for each page.
func eachManual(c *cobra.Command, f func(page, text string) error) error {
	if c.Hidden || c.Name() == "help" {
		return nil
	}
	err := f(manualName(c)+".1", manual(c))
	for _, sub := range c.Commands() {
		err = errors.Join(err, eachManual(sub, f))
	}
	return err
}

func manualName(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

// manual is one page, in the man macros. It has no date: the same program writes the
// same page.
func manual(c *cobra.Command) string {
	var b strings.Builder
	section := func(title string) { fmt.Fprintf(&b, ".SH %s\n", title) }
	fmt.Fprintf(&b, ".TH %s 1 \"\" \"lend\" \"lend manual\"\n", strings.ToUpper(roff(manualName(c))))
	section("NAME")
	fmt.Fprintf(&b, "%s \\- %s\n", roff(manualName(c)), roffText(c.Short))
	section("SYNOPSIS")
	fmt.Fprintf(&b, ".B %s\n", roffText(c.UseLine()))
	section("DESCRIPTION")
	text := c.Long
	if text == "" {
		text = c.Short
	}
	literal(&b, text)
	if c.HasAvailableSubCommands() {
		section("COMMANDS")
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() {
				fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", roffText(sub.Name()), roffText(sub.Short))
			}
		}
	}
	options(&b, "OPTIONS", c.LocalNonPersistentFlags())
	options(&b, "GLOBAL OPTIONS", c.Root().PersistentFlags())
	if c.Example != "" {
		section("EXAMPLES")
		literal(&b, c.Example)
	}
	var also []string
	if c.HasParent() {
		also = append(also, manualName(c.Parent()))
	}
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() && sub.Name() != "help" {
			also = append(also, manualName(sub))
		}
	}
	if len(also) > 0 {
		section("SEE ALSO")
		for i, page := range also {
			end := ","
			if i == len(also)-1 {
				end = ""
			}
			fmt.Fprintf(&b, ".BR %s (1)%s\n", roff(page), end)
		}
	}
	return b.String()
}

func options(b *strings.Builder, title string, flags *pflag.FlagSet) {
	first := true
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		if first {
			fmt.Fprintf(b, ".SH %s\n", title)
			first = false
		}
		name, usage := pflag.UnquoteUsage(f)
		head := "--" + f.Name
		if f.Shorthand != "" {
			head = "-" + f.Shorthand + ", " + head
		}
		if name != "" {
			head += " " + name
		}
		if d := f.DefValue; d != "" && d != "false" && d != "[]" && d != "0" && d != "0s" && d != "-1" {
			usage += " (default " + d + ")"
		}
		fmt.Fprintf(b, ".TP\n.B %s\n%s\n", roffText(head), roffText(usage))
	})
}

// literal keeps lines as they are, since help texts hold tables.
func literal(b *strings.Builder, text string) {
	b.WriteString(".nf\n")
	for line := range strings.Lines(strings.Trim(text, "\n") + "\n") {
		b.WriteString(roffText(strings.TrimSuffix(line, "\n")) + "\n")
	}
	b.WriteString(".fi\n")
}

// roffText is one line that is no request.
func roffText(s string) string {
	s = roff(s)
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
		s = `\&` + s
	}
	return s
}

// roff escapes what the formatter would read as its own.
func roff(s string) string {
	return strings.NewReplacer(`\`, `\e`, "-", `\-`, "…", "...", "\n", " ").Replace(s)
}
