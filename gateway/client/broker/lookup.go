package broker

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/lendcli/lend/gateway/client"
	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/protocol"
	"github.com/lendcli/lend/protocol/name"
)

// lent is one command that may be run, with how a command line of its CLI begins.
type lent struct {
	holding *holding // nil: the caller's own
	entry   protocol.CatalogEntry
	words   []string
}

// Authorities of a call.
const (
	authorityOwner  = "owner"
	authorityCaller = "caller"
)

// lentOf lists what a session's leases allow of a Connector. If one of its gateways
// does not say, nobody knows which command is meant: that is an error.
func (s *session) lentOf(ctx context.Context, key name.ConnectorKey, again bool) ([]lent, error) {
	var out []lent
	granted := false
	for _, h := range s.all() {
		f := h.current()
		if !slices.ContainsFunc(f.Lease.Grants, func(g lease.Grant) bool { return g.Connector == key }) {
			continue
		}
		granted = true
		entries, err := h.catalog(ctx, again)
		if err != nil {
			return nil, &heldError{h, err}
		}
		for _, e := range entries {
			if e.Connector == key {
				out = addLent(out, lent{h, e, WordsOf(e)})
			}
		}
	}
	if !granted {
		return nil, &client.RefusedError{Code: protocol.CodeConnectorUnknown}
	}
	return out, nil
}

// heldError is an error of one of a session's leases.
type heldError struct {
	holding *holding
	error
}

func (e *heldError) Unwrap() error { return e.error }

// addLent adds l. What two leases allow on the same gateway is one command: the lease
// that lives longer is used.
func addLent(all []lent, l lent) []lent {
	for i, o := range all {
		a, b := o.holding.current().Lease, l.holding.current().Lease
		if a.Gateway == b.Gateway && o.entry.Version == l.entry.Version && o.entry.Command == l.entry.Command {
			if b.NotAfter.After(a.NotAfter) {
				all[i] = l
			}
			return all
		}
	}
	return append(all, l)
}

const (
	maxWords  = 256
	maxListed = 20 // commands that a refusal names
)

// WordsOf are the fixed arguments that an entry says a command line begins with; nil: it
// does not say.
func WordsOf(e protocol.CatalogEntry) []string {
	type schema struct {
		Words []string `json:"x-lend-arguments"`
		AllOf []schema `json:"allOf"`
	}
	var s schema
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

// choose finds the one command that a command line means. A command whose fixed
// arguments are not known, or that has none, is meant by any.
func choose(all []lent, key name.ConnectorKey, args []string) (lent, []string, error) {
	var found []lent
	for _, l := range all {
		if len(l.words) <= len(args) && slices.Equal(l.words, args[:len(l.words)]) {
			found = append(found, l)
		}
	}
	if len(found) == 1 {
		return found[0], args[len(found[0].words):], nil
	}
	code, text, listed := protocol.CodeCommandUnknown, "no lent command of "+key.String()+" begins like this", all
	if len(found) > 1 {
		code, text, listed = protocol.CodeDenied, "more than one command of "+key.String()+" begins like this", found
	}
	return lent{}, nil, &NotOneError{Refusal: &client.RefusedError{Code: code}, text: text, Lent: linesOf(listed)}
}

// NotOneError says that a command line means no lent command, or several. Nothing ran.
type NotOneError struct {
	// Refusal is what ExitStatus sees.
	Refusal *client.RefusedError
	// Lent says how the command lines begin that could be meant, quoted where need be,
	// with the public command.
	Lent []string
	text string
	told bool // the caller has been told what is lent
}

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

func linesOf(all []lent) (out []string) {
	for _, l := range all {
		var words []string
		for _, w := range l.words {
			words = append(words, shownWord(w))
		}
		line := l.entry.Command.String()
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

// named finds the lease of a session that grants a command to lend run.
func (s *session) named(o *RunOptions) (*holding, error) {
	key, err := name.ParseConnectorKey(o.Connector)
	if err != nil {
		return nil, err
	}
	var found *holding
	granted := false
	for _, h := range s.all() {
		l := h.current().Lease
		for _, g := range l.Grants {
			if g.Connector != key {
				continue
			}
			granted = true
			if o.Version != "" && g.Version.String() != o.Version ||
				!slices.ContainsFunc(g.Commands, func(c name.Command) bool { return c.String() == o.Command }) {
				continue
			}
			switch {
			case found == nil:
				found = h
			case found.current().Lease.Gateway != l.Gateway:
				return nil, fmt.Errorf("choose lease: several gateways lend %s", key)
			case l.NotAfter.After(found.current().Lease.NotAfter):
				found = h
			}
		}
	}
	switch {
	case found != nil:
		return found, nil
	case granted:
		return nil, &client.RefusedError{Code: protocol.CodeCommandUnknown}
	default:
		return nil, &client.RefusedError{Code: protocol.CodeConnectorUnknown}
	}
}
