package edit

import (
	"reflect"
	"slices"
	"strings"

	"github.com/lendcli/lend/policy"
	"github.com/lendcli/lend/policy/compare"
	"github.com/lendcli/lend/policy/file"
	"github.com/lendcli/lend/protocol/name"
)

// Part is text for a policy file, as a preset makes it: what stands below three of its
// keys, each in block style, indented by two spaces and with the key's own line, and the
// peers that it is about. Each text may be "".
type Part struct {
	// Peers are names of the file, or with an ID new ones.
	Peers []Newcomer
	// Rule is the name of the rule. Connector, Version and Commands are what Declarations, Rules and Tests are about.
	Rule                       string
	Connector                  name.ConnectorKey
	Version                    name.Version
	Commands                   []name.Command
	Declarations, Rules, Tests string
}

// Newcomer is a peer by its name; the ID is zero for one that the file knows.
type Newcomer struct {
	Name name.Label
	ID   name.PeerID
}

// Add puts a Part into a file. Commands and tests that the file has in the same way
// already stay as they are. Other errors than *RefusedError are those of policy.Parse.
func Add(filename string, data []byte, p Part, source policy.Contracts) (Result, error) {
	w, err := begin(filename, data, source)
	if err != nil {
		return Result{}, err
	}
	if source != nil {
		if _, _, err := source.Contract(p.Connector, p.Version, name.ConnectionID{}); err != nil {
			return Result{}, refuse("lend connector new, then lend connector add", "%s (version %s) is to be installed first: %s", p.Connector, p.Version, err)
		}
	}
	if p.Rules, err = w.retitled(p); err != nil {
		return Result{}, err
	}
	ids := map[name.PeerID]bool{}
	fresh := false
	for _, q := range p.Peers {
		id, err := w.introduce(&Grant{Peer: q.Name, ID: q.ID})
		if err != nil {
			return Result{}, err
		}
		ids[id] = true
		_, known := w.before.Peers()[q.Name]
		fresh = fresh || !known
	}
	if err := w.declare(p); err != nil {
		return Result{}, err
	}
	if p.Tests, err = w.newTests(p.Tests); err != nil {
		return Result{}, err
	}
	for _, add := range []struct{ key, text string }{{"allow", p.Rules}, {"tests", p.Tests}} {
		if err := w.addSection(add.key, add.text); err != nil {
			return Result{}, err
		}
	}
	if after, err := policy.Parse(filename, []byte(w.text)); err == nil { // else finish says it
		for _, q := range p.Peers {
			if err := gives(after, after.Peers()[q.Name], Grant{Peer: q.Name, Connector: p.Connector, Commands: p.Commands}); err != nil {
				return Result{}, err
			}
		}
	}
	r, err := w.finish()
	if err != nil {
		return Result{}, err
	}
	err = only(r.Changes, func(c compare.Change) bool {
		mine := ids[c.PeerID] && c.Connector == p.Connector && slices.Contains(p.Commands, c.Command)
		return mine || fresh && (ids[c.PeerID] || c.Connector.IsZero() && c.PeerID.IsZero())
	})
	if err != nil {
		return Result{}, err
	}
	return r, nil
}

// Introduce adds a peer's name and ID to a file, and no rule. What the peer has by that
// alone (a rule may be for all that an issuer names) is in the changes. Other errors than
// *RefusedError are those of policy.Parse.
func Introduce(filename string, data []byte, n Newcomer, source policy.Contracts) (r Result, err error) {
	w, err := begin(filename, data, source)
	if err == nil {
		_, err = w.introduce(&Grant{Peer: n.Name, ID: n.ID})
	}
	if err == nil {
		r, err = w.finish()
	}
	return r, err
}

// declare adds the declarations that the file does not have; one that it has has to be
// the same.
func (w *work) declare(p Part) error {
	before := w.before.Content().Declared[p.Connector]
	if len(before) == 0 || p.Declarations == "" {
		return w.addSection("commands", p.Declarations)
	}
	other, err := file.Parse("", []byte("policy: 1\n"+p.Declarations))
	if err != nil {
		return err
	}
	missing := map[string]bool{}
	for _, n := range p.Commands {
		d := other.Declared[p.Connector][n]
		switch have := before[n]; {
		case have == nil:
			missing[n.String()] = true
		case d == nil || !reflect.DeepEqual(have.Command, d.Command):
			return refuse("change it by hand, or give the Connector another key", "the file declares %s of %s already, and otherwise", n, p.Connector)
		}
	}
	s, err := w.sheet()
	if err != nil {
		return err
	}
	m := s.Root.Get("commands").Get(p.Connector.String())
	if s.Flow(m) && len(missing) > 0 {
		return refuse("write each command on a line of its own, or add the part by hand", "the commands of %s are written in braces", p.Connector)
	}
	column := s.Column(s.Span(m).From)
	var b strings.Builder
	taken := false
	for line := range strings.Lines(p.Declarations) {
		if n, ok := strings.CutPrefix(line, "    "); ok && n[0] != ' ' {
			taken = missing[strings.TrimSuffix(strings.TrimSpace(n), ":")]
		}
		if taken {
			b.WriteString(strings.Repeat(" ", column) + strings.TrimPrefix(line, "    "))
		}
	}
	if b.Len() > 0 {
		s.below(s.Span(m), column, b.String())
		w.text = s.done()
	}
	return nil
}

// addSection puts the lines below a key's own line under that key of the file, or all
// of them at its end.
func (w *work) addSection(key, text string) error {
	if text == "" {
		return nil
	}
	s, err := w.sheet()
	if err != nil {
		return err
	}
	n, at := s.Root.Get(key), s.Root.Key(key)
	_, body, _ := strings.Cut(text, "\n")
	switch {
	case s.Flow(s.Root):
		return refuse("write each key on a line of its own", "the file is written in braces")
	case n == nil:
		s.below(s.Span(s.Root), 0, text)
	case len(n.Values) == 0:
		column := s.Column(s.Span(at).From) + 2
		span := s.Span(n)
		s.unfold(span)
		s.below(span, column, indent(body, column))
	case s.Flow(n):
		return refuse("write each item on a line of its own, or add the part by hand", "%s is written in braces", key)
	default:
		column := s.Column(s.Span(n).From)
		s.below(s.Span(n), column, indent(body, column))
	}
	w.text = s.done()
	return nil
}

// indent moves lines that are indented by two spaces.
func indent(lines string, column int) string {
	var b strings.Builder
	for line := range strings.Lines(lines) {
		b.WriteString(strings.Repeat(" ", column) + strings.TrimPrefix(line, "  "))
	}
	return b.String()
}
