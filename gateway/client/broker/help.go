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
	if !asks || c.broker.config.Help == nil || len(all) == 0 {
		return
	}
	var not *NotOneError
	var refused *client.RefusedError
	if unclear := errors.As(err, &not); !unclear && !(errors.As(err, &refused) && refused.Code == protocol.CodeArgumentRejected) {
		return
	}
	var some, every []Line
	for _, l := range all {
		line := Line{l.words, l.entry}
		every = append(every, line)
		if len(about) <= len(l.words) && slices.Equal(about, l.words[:len(about)]) {
			some = append(some, line)
		}
	}
	if len(some) == 0 {
		some = every
	}
	c.broker.config.Help(c.streams.Stderr, c.said.Name, some)
	if not != nil {
		not.told = true
	}
}
