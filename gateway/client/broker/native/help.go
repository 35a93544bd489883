package native

import (
	"errors"
	"slices"
	"strings"

	"github.com/lendcli/lend/protocol"
)

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

// Help returns what to tell somebody whose command line was refused with err and asks for
// help: what begins as they say, or all; nil if it asks for none, or was refused for
// another reason. A *NotOneError lists nothing any more then. It changes no end: nothing
// ran, so the call is refused as any other.
func Help(all []Line, args []string, err error) (lines []Line) {
	about, asks := asksHelp(args)
	var not *NotOneError
	var refused *protocol.Refusal
	unclear := errors.As(err, &not)
	rejected := errors.As(err, &refused) && refused.Code == protocol.CodeArgumentRejected
	if !asks || !unclear && !rejected || len(all) == 0 {
		return nil
	}
	begins := func(l Line) bool { return len(about) <= len(l.Words) && slices.Equal(about, l.Words[:len(about)]) }
	some := slices.ContainsFunc(all, begins)
	for _, l := range all {
		if !some || begins(l) {
			lines = append(lines, l)
		}
	}
	if unclear {
		not.told = true
	}
	return lines
}
