package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/lendcli/lend/gateway/client/broker/native"
	"github.com/lendcli/lend/gateway/synopsis"
	"github.com/lendcli/lend/protocol/name"
)

// maxHelpLines bounds the commands that the help of a shim lists.
const maxHelpLines = 200

// tellLent is the help of a shim: what is lent under a native name, or what one command
// takes. It goes to the caller's error output, since nothing ran.
func tellLent(to io.Writer, as string, lines []native.Line) {
	var text strings.Builder // it returns no errors
	a := newApp(nil, nil, &text, &text)
	if len(lines) == 1 {
		_ = a.describeAs(lines[0].Entry, nativeWords(as, lines[0])...)
	} else {
		slices.SortFunc(lines, func(a, b native.Line) int { return slices.Compare(a.Words, b.Words) })
		_ = a.say("Lent as %s (each with --help tells more):", name.Show(as))
		_ = a.table(helpRows(as, lines))
	}
	_, _ = io.WriteString(to, text.String()) // who reads nothing needs no help
}

func helpRows(as string, lines []native.Line) (rows [][]string) {
	for _, l := range lines {
		if len(rows) == maxHelpLines {
			return append(rows, []string{fmt.Sprintf("  and %d more", len(lines)-maxHelpLines)})
		}
		words := nativeWords(as, l)
		params, _ := synopsis.Read(l.Entry) // without a schema there are none to show
		for _, p := range params {
			if u := p.Usage(); u != "" && p.Required {
				words = append(words, name.Show(u))
			}
		}
		if slices.ContainsFunc(params, func(p synopsis.Parameter) bool { return !p.Required && p.Usage() != "" }) {
			words = append(words, "[…]")
		}
		rows = append(rows, []string{"  " + strings.Join(words, " "), name.Show(l.Entry.Summary)})
	}
	return rows
}

// nativeWords are how a command line begins, for people.
func nativeWords(as string, l native.Line) []string {
	out := []string{name.Show(as)}
	for _, w := range l.Words {
		out = append(out, name.Show(w))
	}
	return out
}
