package edit

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/lendcli/lend/policy/file"
	"github.com/lendcli/lend/policy/layout"
	"github.com/lendcli/lend/policy/review"
	"github.com/lendcli/lend/policy/strict"
	"github.com/lendcli/lend/protocol/name"
)

// cutting is a Removal as it is worked into the text: all changes are collected, and
// made at once.
type cutting struct {
	*sheet

	f      *file.File
	id     name.PeerID
	d      Removal
	titles map[string]bool // of rules
	fresh  []string        // titles of the rules as they will be, in their order
	same   map[string]*strict.Node
	notes  []review.Prose
}

// takeAway changes every rule that gives the peer something of it, and the tests that
// no longer hold for that.
func (w *work) takeAway(id name.PeerID, d Removal) error {
	f := w.before.Content()
	s, err := w.sheet()
	if err != nil {
		return err
	}
	c, err := cut(s.Source, f, id, d, len(f.Rules))
	if err != nil {
		return err
	}
	if !c.sound(w.filename) {
		list := s.Root.Get("allow")
		at := sort.Search(len(list.Values)-1, func(i int) bool {
			part, err := cut(s.Source, f, id, d, i+1)
			return err != nil || !part.sound(w.filename)
		})
		return refuse("change it by hand", "the rule %s (%s:%d) is written in a way that cannot be changed here", name.Quote(list.Values[at].Get("name").Str()), w.filename, list.Values[at].Line)
	}
	w.dropTests(c)
	w.notes = append(w.notes, c.notes...)
	if w.text = c.done(); len(w.text) > file.MaxSize {
		return refuse("take rules apart by hand", "the changed file would have %s, more than the %s that a file may have", file.ShowSize(int64(len(w.text))), file.ShowSize(file.MaxSize))
	}
	return nil
}

// cut collects the changes of as many rules, in the order of the text.
func cut(s *layout.Source, f *file.File, id name.PeerID, d Removal, rules int) (*cutting, error) {
	c := &cutting{sheet: &sheet{Source: s}, f: f, id: id, d: d, titles: map[string]bool{}, same: map[string]*strict.Node{}}
	list := s.Root.Get("allow")
	named := map[string]*file.Rule{}
	for _, r := range f.Rules {
		named[r.Name], c.titles[r.Name] = r, true
	}
	gone := map[int]bool{}
	for i, n := range list.Items() {
		r := named[n.Get("name").Str()]
		if i >= rules || !d.reachedBy(f, r, id) {
			c.fresh = append(c.fresh, r.Name)
			c.same[r.Name] = n
			continue
		}
		if issuer := throughIssuer(f, r, id); issuer != nil {
			return nil, holdersRefusal(r, issuer, d)
		}
		others, all := othersOf(f, r, id), !slices.ContainsFunc(r.Commands, func(g *file.Grant) bool { return !d.has(g.Name) })
		if all && len(others) == 0 {
			gone[i] = true
			c.note("The rule %s goes: it was about nobody else.", r)
			continue
		}
		c.fresh = append(c.fresh, r.Name)
		switch {
		case all:
			c.withoutPeer(r, n)
		case len(others) == 0:
			c.removeCommands(n, d)
		default:
			c.split(r, list, i)
		}
	}
	c.drop("allow", gone)
	return c, nil
}

// sound tells whether the text has the rules that it should have, and those that were
// not to be touched as they were.
func (c *cutting) sound(filename string) bool {
	text := c.done()
	doc, err := strict.Parse(filename, []byte(text), max(file.MaxSize, len(text)))
	if err != nil || doc.Err() != nil {
		return false
	}
	rules := doc.Root.Get("allow").Items()
	return len(rules) == len(c.fresh) && !slices.ContainsFunc(c.fresh, func(title string) bool {
		r := rules[0]
		rules = rules[1:]
		was := c.same[title]
		return r.Get("name").Str() != title || was != nil && !strict.Equal(was, r)
	})
}

func (c *cutting) note(format string, r *file.Rule, more ...any) {
	c.notes = append(c.notes, review.Prose(fmt.Sprintf(format, append([]any{name.Quote(r.Name)}, more...)...)))
}

// drop takes items of a list or a map of the document away; one that is empty then is
// written [] or {}.
func (s *sheet) drop(key string, gone map[int]bool) {
	list := s.Root.Get(key)
	switch {
	case len(gone) == 0:
		return
	case len(gone) == len(list.Values) && s.Flow(list):
		span := s.Span(list)
		s.replace(layout.Span{From: span.From + 1, To: span.To - 1}, "")
		return
	case len(gone) == len(list.Values):
		end := s.Span(s.Root.Key(key)).To
		s.insert(end+strings.IndexByte(s.Text[end:], ':')+1, map[bool]string{true: " {}", false: " []"}[list.Kind == strict.Map])
	}
	s.remove(list, func(i int) bool { return gone[i] })
}

// withoutPeer takes the peer out of "to", and puts the other members of its groups in
// their places.
func (c *cutting) withoutPeer(r *file.Rule, rule *strict.Node) {
	to := rule.Get("to")
	var said []string // what the list has, or has got
	for _, n := range to.Values {
		if names := standIns(c.f, n.Text, c.id); len(names) == 1 && names[0] == n.Text {
			said = append(said, n.Text)
		}
	}
	gone := map[int]bool{}
	for i, n := range to.Values {
		var fresh []string
		names := standIns(c.f, n.Text, c.id)
		if len(names) == 1 && names[0] == n.Text {
			continue
		}
		for _, other := range names {
			if !slices.Contains(said, other) {
				said = append(said, other)
				fresh = append(fresh, spell(other))
			}
		}
		if len(names) > 0 {
			c.note("In the rule %s the members of %s stand for the group by now: later members of the group are not in it.", r, n.Text)
		}
		if len(fresh) == 0 {
			gone[i] = true
			continue
		}
		between := ", "
		if !c.Flow(to) {
			between = "\n" + strings.Repeat(" ", c.Column(c.Span(to).From)) + "- "
		}
		c.replace(c.Span(n), strings.Join(fresh, between))
	}
	c.remove(to, func(i int) bool { return gone[i] })
}

// split leaves a rule to the others, and puts a copy below it that gives the peer what
// it keeps.
func (c *cutting) split(r *file.Rule, list *strict.Node, at int) {
	own, rule := &sheet{Source: c.Source}, list.Values[at]
	title := unusedTitle(c.titles, r.Name+" ("+c.d.Peer.String()+")")
	c.titles[title] = true
	c.fresh = append(c.fresh, title)
	c.withoutPeer(r, rule)
	own.replace(own.Span(rule.Get("name")), spell(title))
	own.setTo(rule, spell(c.d.Peer.String()))
	own.removeCommands(rule, c.d)
	c.note("The rule %s is split: what %s keeps of it is in %s.", r, c.d.Peer, name.Quote(title))

	item := c.part(list, at)
	if c.Flow(list) {
		c.insert(item.To, ", "+own.within(item))
		return
	}
	lines := layout.Span{From: c.LineStart(c.Line(item.From)), To: c.lineEnd(item)}
	text := own.within(lines)
	if !strings.HasSuffix(c.Text[lines.From:lines.To], "\n") {
		text = "\n" + text
	}
	c.insert(lines.To, text)
}

// setTo makes a rule be about one peer.
func (s *sheet) setTo(rule *strict.Node, peer string) {
	to := rule.Get("to")
	at := s.Span(to)
	if s.Flow(to) {
		s.replace(at, flow([]string{peer}))
		return
	}
	s.replace(s.Span(to.Values[0]), peer)
	s.remove(to, func(i int) bool { return i > 0 })
}
