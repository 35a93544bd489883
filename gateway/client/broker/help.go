package broker

import (
	"errors"
	"slices"
	"strings"

	"github.com/lendcli/lend/gateway/client"
	"github.com/lendcli/lend/protocol"
)

// Line is a lent command as a command line of its CLI.
type Line struct {
	// Words are how the command line begins. They are the gateway's; nil: not known.
	Words []string
	Entry protocol.CatalogEntry
}

// asksHelp tells whether a command line asks what there is, and the words that it asks
// about: "issue list --help", "help issue", or nothing at all.
func asksHelp(args []string) (about []string, ok bool) {
	if len(args) == 0 {
		return nil, true
	}
	if args[0] == "help" {
		return args[1:], true
	}
	for i, a := range args {
		switch {
		case a == "--help" || a == "-h":
			return args[:i], true
		case strings.HasPrefix(a, "-"):
			return nil, slices.ContainsFunc(args[i:], func(a string) bool { return a == "--help" || a == "-h" })
		}
	}
	return nil, false
}

// help tells who asks for it what is lent, on their error output: what begins as they
// say, or all. It changes no end: nothing ran, so the call is refused as any other.
func (c *Call) help(all []lent, err error) {
	about, asks := asksHelp(c.said.Args)
	var not *NotOneError
	var refused *client.RefusedError
	unclear := errors.As(err, &not)
	rejected := errors.As(err, &refused) && refused.Code == protocol.CodeArgumentRejected
	if !asks || !unclear && !rejected || len(all) == 0 || c.broker.config.Help == nil {
		return
	}
	begins := func(l lent) bool { return len(about) <= len(l.words) && slices.Equal(about, l.words[:len(about)]) }
	some := slices.ContainsFunc(all, begins)
	var lines []Line
	for _, l := range all {
		if !some || begins(l) {
			lines = append(lines, Line{l.words, l.entry})
		}
	}
	c.broker.config.Help(c.streams.Stderr, c.said.Name, lines)
	if unclear {
		not.told = true
	}
}
