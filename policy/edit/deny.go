package edit

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lendcli/lend/policy"
	"github.com/lendcli/lend/policy/compare"
	"github.com/lendcli/lend/policy/file"
	"github.com/lendcli/lend/policy/layout"
	"github.com/lendcli/lend/policy/strict"
	"github.com/lendcli/lend/protocol/name"
)

// Removal is what one peer shall no longer be allowed.
type Removal struct {
	Peer      name.Label
	Connector name.ConnectorKey
	// Commands are those that go; none means all of the Connector.
	Commands []name.Command
}

func (d Removal) has(c name.Command) bool {
	return len(d.Commands) == 0 || slices.Contains(d.Commands, c)
}

// Deny takes away what a Removal says, in every rule and version, under every issuer.
// A rule that others share is split: they keep it, with the members of a group in the
// place of the group, and the peer keeps the rest of it in a rule of its own. Other
// errors than *RefusedError are those of policy.Parse and ErrNothing, where the peer has
// none of it.
func Deny(filename string, data []byte, d Removal, source policy.Contracts) (Result, error) {
	w, err := begin(filename, data, source)
	if err != nil {
		return Result{}, err
	}
	f := w.before.Content()
	id, known := f.Peers[d.Peer]
	if !known {
		names := make([]string, 0, len(f.Peers))
		for label := range f.Peers {
			names = append(names, label.String())
		}
		if _, group := f.Groups[d.Peer]; group {
			return Result{}, refuse("name a peer of it", "%s is a group", d.Peer)
		}
		return Result{}, refuse(strict.Meant(d.Peer.String(), names), "no peer of the file is named %s", name.Quote(d.Peer.String()))
	}
	p := w.before
	for changed := false; ; changed = true {
		rule := firstReaching(p.Content(), id, d)
		if rule == nil && !changed {
			return Result{}, fmt.Errorf("%w: %s", ErrNothing, d.nothing(f))
		}
		if rule == nil {
			break
		}
		if err := w.take(p.Content(), rule, id, d); err != nil {
			return Result{}, err
		}
		next, err := policy.Parse(filename, []byte(w.text))
		if err != nil {
			return Result{}, refuse("change it by hand", "the changed file could not be read: %s", err)
		}
		if again := firstReaching(next.Content(), id, d); again != nil && again.Name == rule.Name && slices.Equal(again.To, rule.To) && len(again.Commands) == len(rule.Commands) {
			return Result{}, refuse("change it by hand", "the rule %s (%s) could not be changed", name.Quote(rule.Name), rule.Position)
		}
		p = next
	}
	r, err := w.finish()
	if err != nil {
		return Result{}, err
	}
	if err := r.denies(id, d); err != nil {
		return Result{}, err
	}
	return r, nil
}

// denies makes sure that the peer has nothing of it any more, and that nothing else
// is changed.
func (r Result) denies(id name.PeerID, d Removal) error {
	if rule := firstReaching(r.Policy.Content(), id, d); rule != nil {
		return refuse("change it by hand", "the rule %s (%s) would still let %s", name.Quote(rule.Name), rule.Position, d.Peer)
	}
	return only(r.Changes, func(c compare.Change) bool {
		return c.PeerID == id && c.Connector == d.Connector && d.has(c.Command) && c.Effect == compare.Narrower
	})
}

// nothing says that the peer has none of it, and what it has.
func (d Removal) nothing(f *file.File) string {
	var commands, connectors []string
	for _, r := range f.Rules {
		connectors = append(connectors, r.Connector.String())
		if r.Connector == d.Connector {
			for _, g := range r.Commands {
				commands = append(commands, g.Name.String())
			}
		}
	}
	text := fmt.Sprintf("no rule lets %s run anything of %s", d.Peer, d.Connector)
	if !slices.Contains(connectors, d.Connector.String()) {
		if hint := strict.Meant(d.Connector.String(), connectors); hint != "" {
			text += " (" + hint + ")"
		}
		return text
	}
	if len(d.Commands) > 0 {
		text = fmt.Sprintf("no rule lets %s run that", d.Peer)
		for _, c := range d.Commands {
			if hint := strict.Meant(c.String(), commands); hint != "" {
				text += " (" + hint + ")"
			}
		}
	}
	return text
}

// firstReaching is a rule that gives the peer something that shall go. A rule counts
// by its words, whichever Connectors are installed and whatever the time is.
func firstReaching(f *file.File, id name.PeerID, d Removal) *file.Rule {
	for _, r := range f.Rules {
		if r.Connector != d.Connector || !slices.ContainsFunc(r.Commands, func(g *file.Grant) bool { return d.has(g.Name) }) {
			continue
		}
		if r.Peers[id] || throughIssuer(f, r, id) != nil {
			return r
		}
	}
	return nil
}

// throughIssuer is an issuer whose holders the rule is about, if it may name the peer.
func throughIssuer(f *file.File, r *file.Rule, id name.PeerID) *file.Issuer {
	for _, i := range f.Issuers {
		if r.HoldersOf[i.ID] && r.Under(i.ID) && i.MayGrant(r.Connector) && i.MayName(id) {
			return i
		}
	}
	return nil
}

// take changes one rule, as the file has it by now.
func (w *work) take(f *file.File, r *file.Rule, id name.PeerID, d Removal) error {
	if i := throughIssuer(f, r, id); i != nil {
		return holdersRefusal(r, i, d)
	}
	s, err := w.sheet()
	if err != nil {
		return err
	}
	list, at := ruleAt(s.Source, r.Name)
	if at < 0 {
		return refuse("change it by hand", "the rule %s (%s) was not found again", name.Quote(r.Name), r.Position)
	}
	others, all := othersOf(f, r, id), !slices.ContainsFunc(r.Commands, func(g *file.Grant) bool { return !d.has(g.Name) })
	switch {
	case all && len(others) == 0:
		s.removeRule(list, at)
		w.note("The rule %s goes: it was about nobody else.", r)
	case all:
		w.withoutPeer(s, f, r, list.Values[at], id)
	case len(others) == 0:
		s.removeCommands(list.Values[at], d)
	default:
		return w.split(s, f, r, list, at, id, d)
	}
	w.text = s.done()
	return nil
}

func (w *work) note(format string, r *file.Rule, more ...any) {
	w.notes = append(w.notes, fmt.Sprintf(format, append([]any{name.Quote(r.Name)}, more...)...))
}

func holdersRefusal(r *file.Rule, i *file.Issuer, d Removal) error {
	where := fmt.Sprintf("the rule %s (%s) is for whoever %s names, and that may be %s", name.Quote(r.Name), r.Position, i.Name, d.Peer)
	if i.HoldersAny {
		return refuse(fmt.Sprintf("list the peers that %s may name in its holders (%s), without %s, or name peers in the rule", i.Name, i.Position, d.Peer), "%s", where)
	}
	return refuse(fmt.Sprintf("take %s out of the holders of %s (%s), or name peers in the rule", d.Peer, i.Name, i.Position), "%s", where)
}

// othersOf are the names of those that the rule is about beside the peer: other
// peers, other members of its groups, and holders of issuers.
func othersOf(f *file.File, r *file.Rule, id name.PeerID) (out []string) {
	for _, to := range r.To {
		out = append(out, standIns(f, to, id)...)
	}
	return out
}

// standIns are the names that stand for one name of a rule without the peer: none, the
// name itself, or the other members of a group.
func standIns(f *file.File, to string, id name.PeerID) (out []string) {
	label, err := name.ParseLabel(to)
	if err != nil {
		return []string{to} // holders-of:ISSUER
	}
	if peer, ok := f.Peers[label]; ok {
		if peer == id {
			return nil
		}
		return []string{to}
	}
	members := f.Groups[label]
	if !slices.Contains(members, id) {
		return []string{to}
	}
	for _, m := range members {
		if m != id {
			out = append(out, f.NameOf(m))
		}
	}
	return out
}

// removeRule takes a rule away; a list that is empty then is written [].
func (s *sheet) removeRule(list *strict.Node, at int) {
	if len(list.Values) > 1 {
		s.remove(list, func(i int) bool { return i == at })
		return
	}
	span := s.Span(list)
	if s.Flow(list) {
		s.replace(layout.Span{From: span.From + 1, To: span.To - 1}, "")
		return
	}
	key := s.Span(s.Root.Key("allow"))
	s.insert(key.To+strings.IndexByte(s.Text[key.To:], ':')+1, " []")
	s.replace(layout.Span{From: s.LineStart(s.Line(span.From)), To: s.lineEnd(span)}, "")
}

func (s *sheet) removeCommands(rule *strict.Node, d Removal) {
	commands := rule.Get("commands")
	s.remove(commands, func(i int) bool { return d.names(commands.Keys[i].Text) })
	recorded := rule.Get("record_arguments")
	switch {
	case recorded == nil:
	case slices.ContainsFunc(recorded.Values, func(n *strict.Node) bool { return !d.names(n.Text) }):
		s.remove(recorded, func(i int) bool { return d.names(recorded.Values[i].Text) })
	default:
		s.remove(rule, func(i int) bool { return rule.Keys[i].Text == "record_arguments" })
	}
}

func (d Removal) names(command string) bool {
	c, err := name.ParseCommand(command)
	return err == nil && d.has(c)
}

// withoutPeer takes the peer out of "to", and puts the other members of its groups in
// their places.
func (w *work) withoutPeer(s *sheet, f *file.File, r *file.Rule, rule *strict.Node, id name.PeerID) {
	to := rule.Get("to")
	var said []string // what the list has, or has got
	for _, n := range to.Values {
		if names := standIns(f, n.Text, id); len(names) == 1 && names[0] == n.Text {
			said = append(said, n.Text)
		}
	}
	gone := map[int]bool{}
	for i, n := range to.Values {
		var fresh []string
		names := standIns(f, n.Text, id)
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
			w.note("In the rule %s the members of %s stand for the group by now: later members of the group are not in it.", r, n.Text)
		}
		if len(fresh) == 0 {
			gone[i] = true
			continue
		}
		between := ", "
		if !s.Flow(to) {
			between = "\n" + strings.Repeat(" ", s.Column(s.Span(to).From)) + "- "
		}
		s.replace(s.Span(n), strings.Join(fresh, between))
	}
	s.remove(to, func(i int) bool { return gone[i] })
}

// split leaves a rule to the others, and puts a copy below it that gives the peer what
// it keeps.
func (w *work) split(s *sheet, f *file.File, r *file.Rule, list *strict.Node, at int, id name.PeerID, d Removal) error {
	item := s.part(list, at)
	if s.Flow(list) {
		s.insert(item.To, ", "+s.Text[item.From:item.To])
	} else {
		lines := layout.Span{From: s.LineStart(s.Line(item.From)), To: s.lineEnd(item)}
		text := s.Text[lines.From:lines.To]
		if !strings.HasSuffix(text, "\n") {
			text = "\n" + text
		}
		s.insert(lines.To, text)
	}
	w.text = s.done()
	s, err := w.sheet()
	if err != nil {
		return err
	}
	list = s.Root.Get("allow")
	if len(list.Values) < at+2 || !strict.Equal(list.Values[at], list.Values[at+1]) {
		return refuse("change it by hand", "the rule %s (%s) is written in a way that cannot be split", name.Quote(r.Name), r.Position)
	}
	w.withoutPeer(s, f, r, list.Values[at], id)
	own := list.Values[at+1]
	title := unused(w.before, r.Name+" ("+d.Peer.String()+")")
	s.replace(s.Span(own.Get("name")), spell(title))
	s.setTo(own, spell(d.Peer.String()))
	s.removeCommands(own, d)
	w.note("The rule %s is split: what %s keeps of it is in %s.", r, d.Peer, name.Quote(title))
	w.text = s.done()
	return nil
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
