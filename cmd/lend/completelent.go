package main

import (
	"context"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lendcli/lend/gateway/client/broker"
	"github.com/lendcli/lend/gateway/client/broker/native"
	"github.com/lendcli/lend/gateway/client/broker/shims"
	"github.com/lendcli/lend/gateway/client/broker/socket"
	"github.com/lendcli/lend/gateway/synopsis"
	"github.com/lendcli/lend/protocol"
	"github.com/lendcli/lend/protocol/name"
)

// completionWait is how long who presses a key waits for the broker of this machine. It
// goes on asking the gateways, and knows more the next time.
const completionWait = 300 * time.Millisecond

// lentHere is what the session in the environment may run, as far as its broker knows.
func lentHere() []broker.Lent {
	text, at, ok := socket.SplitSession(os.Getenv(sessionVariable))
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), completionWait)
	defer cancel()
	c, err := socket.Lent(ctx, at, text)
	if err != nil {
		return nil
	}
	return c.Commands
}

// lentInSession is what a session may run, from all of its gateways.
func (a *app) lentInSession(ctx context.Context, at, session string) ([]protocol.CatalogEntry, error) {
	c, err := socket.Lent(ctx, at, session)
	switch {
	case errors.Is(err, socket.ErrNotRunning):
		return nil, &hinted{err, "lend broker"}
	case errors.Is(err, broker.ErrNoSession):
		return nil, &hinted{err, hintAccept}
	case err != nil:
		return nil, err
	case len(c.Silent) > 0 && len(c.Commands) == 0:
		return nil, hintf("lend broker status", "%s of the session did not say what is lent", count(len(c.Silent), "gateway", "gateways"))
	case len(c.Silent) > 0:
		a.note("lend: %s of the session did not say what is lent", count(len(c.Silent), "gateway", "gateways"))
	}
	out := make([]protocol.CatalogEntry, 0, len(c.Commands))
	for _, l := range c.Commands {
		out = append(out, l.Entry)
	}
	return out, nil
}

// lentTo is lentHere for the command line of a caller that names no lease of its own.
func lentTo(c *cobra.Command) []broker.Lent {
	if path := c.CommandPath(); path != "lend run" && path != "lend catalog" || c.Flags().Changed("lease") || c.Flags().Changed("lease-fd") ||
		os.Getenv("LEND_LEASE_FILE") != "" || os.Getenv("LEND_LEASE") != "" {
		return nil
	}
	return lentHere()
}

// completeLent completes the parameters of the one command that lend run names.
func completeLent(c *cobra.Command, args []string, prefix string) (out []cobra.Completion) {
	for _, l := range lentTo(c) {
		if len(args) >= 2 && l.Entry.Connector.String() == args[0] && l.Entry.Command.String() == args[1] {
			out = append(out, completeParameters(l.Entry, args[2:], prefix)...)
		}
	}
	return out
}

// completeNative completes a command line of a CLI: the next of the words with which lent
// commands begin, or the parameters of the one that is there.
func completeNative(lines []broker.Lent, key name.ConnectorKey, args []string, prefix string) (out []cobra.Completion) {
	for _, l := range lines {
		words := native.WordsOf(l.Entry)
		switch n := len(args); {
		case l.Entry.Connector != key:
		case n < len(words) && slices.Equal(args, words[:n]):
			out = append(out, offered(words[n], "")...)
		case n >= len(words) && slices.Equal(words, args[:len(words)]):
			out = append(out, completeParameters(l.Entry, args[len(words):], prefix)...)
		}
	}
	return those(out, prefix)
}

// completeParameters offers options, and the values of what only accepts some.
func completeParameters(e protocol.CatalogEntry, args []string, prefix string) (out []cobra.Completion) {
	params, _ := synopsis.Read(e) // what cannot be read completes nothing
	named := func(word string) *synopsis.Parameter {
		for i := range params {
			if p := &params[i]; p.Flag != "" && (p.Flag == word || slices.Contains(p.Aliases, word)) {
				return p
			}
		}
		return nil
	}
	valued := func(word string) *synopsis.Parameter {
		if p := named(word); p != nil && p.Type != "boolean" {
			return p
		}
		return nil
	}
	position := 1
	for i := 0; i < len(args); i++ {
		switch p := valued(args[i]); {
		case p != nil && i == len(args)-1: // its value is what comes
			for _, v := range p.Values {
				out = append(out, offered(v, "")...)
			}
			return out
		case p != nil:
			i++
		case !strings.HasPrefix(args[i], "-"):
			position++
		}
	}
	option, _, assigned := strings.Cut(prefix, "=")
	for _, p := range params {
		switch {
		case assigned && valued(option) != nil && valued(option).Name == p.Name:
			for _, v := range p.Values {
				out = append(out, offered(option+"="+v, "")...)
			}
		case p.Flag != "" && !assigned:
			for _, spelling := range append([]string{p.Flag}, p.Aliases...) {
				out = append(out, offered(spelling, p.Description)...)
			}
		case p.Flag == "" && (p.Position == position || p.Rest):
			for _, v := range p.Values {
				out = append(out, offered(v, p.Description)...)
			}
		}
	}
	return out
}

// offered is a word of a gateway's as a completion, if a shell takes it for nothing but a
// word: it lands on a command line.
func offered(word, text string) []cobra.Completion {
	if plain := strings.NewReplacer("=", "", ",", "").Replace(word); word == "" || quoteWord(plain) != plain {
		return nil
	}
	return []cobra.Completion{described(word, text)}
}

func (a *app) shimCompletionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "completion",
		Short: "print what makes bash complete the shims",
		Long: `Print commands for bash that make it complete the command lines of this machine's
shims: what the session in $LEND_SESSION lends, and its parameters, as its
broker knows them. For zsh run "autoload -U bashcompinit && bashcompinit" first.`,
		Example:           `  eval "$(lend shim completion)"`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(*cobra.Command, []string) error {
			p, err := a.paths()
			if err != nil {
				return err
			}
			all, err := shims.New(p.shims()).List()
			if err != nil {
				return err
			}
			r := struct {
				SchemaVersion int      `json:"schemaVersion"`
				Names         []string `json:"names"`
			}{jsonSchema, []string{}}
			for _, s := range all {
				if s.Foreign {
					continue
				}
				r.Names = append(r.Names, s.Name)
			}
			return a.show(r, func() error {
				for _, n := range r.Names {
					if err := a.say("complete -C 'lend shim complete' %s", quoteWord(n)); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
}

func (a *app) shimCompleteCommand() *cobra.Command {
	return &cobra.Command{
		Use:                "complete NAME WORD PREVIOUS",
		Short:              "what a shell asks for when a key is pressed",
		Hidden:             true,
		Args:               cobra.ExactArgs(3),
		DisableFlagParsing: true, // a word that is completed may look like one
		RunE: func(_ *cobra.Command, args []string) error {
			p, err := a.paths()
			if err != nil {
				return err
			}
			key, err := shims.New(p.shims()).Lookup(args[0])
			if err != nil {
				return err
			}
			words, current, ok := typed(os.Getenv("COMP_LINE"), os.Getenv("COMP_POINT"))
			if !ok || !strings.HasSuffix(current, args[1]) {
				return nil
			}
			for _, c := range completeNative(lentHere(), key, words, current) {
				word, _, _ := strings.Cut(c, "\t")
				if err := a.say("%s", word[len(current)-len(args[1]):]); err != nil { // bash splits at = too
					return err
				}
			}
			return nil
		},
	}
}

// typed takes the line up to the cursor apart: the words after the first, and the one
// that is being typed. What a shell would do more with is left alone.
func typed(line, point string) (words []string, current string, ok bool) {
	n, err := strconv.Atoi(point)
	if err != nil || n < 0 || n > len(line) || strings.ContainsAny(line[:n], "'\"\\`$;&|<>(){}") {
		return nil, "", false
	}
	words = strings.Fields(line[:n])
	if len(words) == 0 || len(words) == 1 && !strings.HasSuffix(line[:n], " ") {
		return nil, "", false
	}
	if !strings.HasSuffix(line[:n], " ") {
		current = words[len(words)-1]
		words = words[:len(words)-1]
	}
	return words[1:], current, true
}
