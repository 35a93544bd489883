package edit

import (
	"fmt"
	"strings"

	"github.com/lendcli/lend/policy/layout"
	"github.com/lendcli/lend/policy/review"
	"github.com/lendcli/lend/policy/strict"
	"github.com/lendcli/lend/protocol/name"
)

// retitled gives the rule of a part a name that the file does not have, where a rule
// about another Connector has it. One about the same Connector is refused.
func (w *work) retitled(p Part) (string, error) {
	taken := false
	for _, r := range w.before.Content().Rules {
		taken = taken || r.Name == p.Rule
		this := r.Name == p.Rule || strings.HasPrefix(r.Name, p.Rule+" ")
		if this && r.Connector == p.Connector {
			return "", refuse("change it by hand, or remove it first", "the file has the rule %s already (%s)", name.Quote(r.Name), r.Position)
		}
	}
	if !taken || p.Rules == "" {
		return p.Rules, nil
	}
	source, err := layout.Read("", []byte(p.Rules))
	if err != nil {
		return "", err
	}
	s := &sheet{Source: source}
	for _, n := range s.Root.Get("allow").Items() {
		s.replace(s.Span(n.Get("name")), spell(unused(w.before, n.Get("name").Str())))
	}
	return s.done(), nil
}

// newTests returns those tests of a part that the file does not have: a peer that was
// denied the part has left those that want it denied. These get back the code that
// went with it. A test that shares only its name gets one of its own.
func (w *work) newTests(text string) (string, error) {
	mine, err := w.sheet()
	if err != nil {
		return "", err
	}
	have := map[string]*strict.Node{}
	taken := map[string]bool{}
	for _, n := range mine.Root.Get("tests").Items() {
		have[n.Get("name").Str()], taken[n.Get("name").Str()] = n, true
	}
	if text == "" || len(have) == 0 {
		return text, nil
	}
	source, err := layout.Read("", []byte(text))
	if err != nil {
		return "", err
	}
	s := &sheet{Source: source}
	list := s.Root.Get("tests")
	gone := map[int]bool{}
	var back []string
	for i, n := range list.Items() {
		title := n.Get("name").Str()
		old := have[title]
		switch {
		case old == nil:
		case strict.Equal(old, n):
			gone[i] = true
		case lacksCode(old, n):
			gone[i] = true
			mine.addPair(nil, old, "code", spell(n.Get("code").Str()))
			back = append(back, name.Quote(title))
		default:
			title = unusedTitle(taken, title)
			s.replace(s.Span(n.Get("name")), spell(title))
		}
		taken[title] = true
	}
	w.text = mine.done()
	if len(back) > 0 {
		w.notes = append(w.notes, review.Prose(fmt.Sprintf("These tests of the file get their code back: %s.", review.Listed(back))))
	}
	if len(gone) == len(list.Items()) {
		return "", nil
	}
	s.remove(list, func(i int) bool { return gone[i] })
	return s.done(), nil
}

// lacksCode tells whether a test is another one without its code.
func lacksCode(old, n *strict.Node) bool {
	if old.Get("code") != nil || n.Get("code") == nil || len(old.Keys) != len(n.Keys)-1 {
		return false
	}
	same := true
	n.Pairs(func(key, value *strict.Node) {
		same = same && (key.Str() == "code" || strict.Equal(old.Get(key.Str()), value))
	})
	return same
}
