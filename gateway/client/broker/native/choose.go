package native

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/lendcli/lend/gateway/synopsis/schema"
	"github.com/lendcli/lend/protocol"
	"github.com/lendcli/lend/protocol/name"
)

// Line is a lent command as a command line of its CLI.
type Line struct {
	// Words are how the command line begins. They are the gateway's; nil: not known.
	Words []string
	Entry protocol.CatalogEntry
}

const (
	maxWords  = 256
	maxListed = 20 // commands that a refusal names
)

// WordsOf are the fixed arguments that an entry says a command line begins with, at most
// 256; nil: it does not say.
func WordsOf(e protocol.CatalogEntry) []string {
	var s schema.Node
	if json.Unmarshal(e.InputSchema, &s) != nil {
		return nil
	}
	for _, other := range s.AllOf { // before and after a change; both start the same
		if s.Words == nil {
			s.Words = other.Words
		}
	}
	if len(s.Words) > maxWords {
		return nil
	}
	return s.Words
}

// Choose finds the one command of key that a command line means, and the arguments that
// come after its words; at counts in all. A command whose words are not known, or that
// has none, is meant by any. Else the error is a *NotOneError.
func Choose(all []Line, key name.ConnectorKey, args []string) (at int, rest []string, err error) {
	var found []int
	for i, l := range all {
		if len(l.Words) <= len(args) && slices.Equal(l.Words, args[:len(l.Words)]) {
			found = append(found, i)
		}
	}
	if len(found) == 1 {
		return found[0], args[len(all[found[0]].Words):], nil
	}
	code, text, listed := protocol.CodeCommandUnknown, "no lent command of "+key.String()+" begins like this", all
	if len(found) > 1 {
		code, text, listed = protocol.CodeDenied, "more than one command of "+key.String()+" begins like this", nil
		for _, i := range found {
			listed = append(listed, all[i])
		}
	}
	return 0, nil, &NotOneError{Refusal: &protocol.Refusal{Code: code}, Lent: listOf(listed), text: text}
}

// NotOneError says that a command line means no lent command, or several. Nothing ran.
type NotOneError struct {
	// Refusal is what an exit status is made of.
	Refusal *protocol.Refusal
	// Lent says how the command lines begin that could be meant, quoted where need be,
	// with the public command.
	Lent []string
	text string
	told bool // the caller has been told what is lent
}

// Error names what is lent, unless the caller has been told.
func (e *NotOneError) Error() string {
	text := "refused: " + e.Refusal.Code.String() + ": " + e.text
	if e.told {
		return text
	}
	if len(e.Lent) == 0 {
		return text + "; nothing of it is lent now"
	}
	return text + "; lent: " + strings.Join(e.Lent, ", ")
}

// Unwrap returns Refusal.
func (e *NotOneError) Unwrap() error { return e.Refusal }

func listOf(all []Line) (out []string) {
	for _, l := range all {
		var words []string
		for _, w := range l.Words {
			words = append(words, shownWord(w))
		}
		line := l.Entry.Command.String()
		if native := strings.Join(words, " "); native != "" && native != strings.ReplaceAll(line, ".", " ") {
			line = fmt.Sprintf("%s (%s)", native, line)
		} else if native != "" {
			line = native
		}
		out = append(out, line)
	}
	slices.Sort(out)
	out = slices.Compact(out)
	if n := len(out) - maxListed; n > 0 {
		out = append(out[:maxListed], fmt.Sprintf("and %d more", n))
	}
	return out
}

// shownWord quotes what a terminal or a reader could take for something else.
func shownWord(w string) string {
	plain := func(r rune) bool { return r > ' ' && r <= '~' && !strings.ContainsRune("\"'\\,()", r) }
	if w == "" || strings.ContainsFunc(w, func(r rune) bool { return !plain(r) }) {
		return name.Quote(w)
	}
	return w
}
