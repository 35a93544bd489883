package edit

import (
	"fmt"
	"slices"

	"github.com/lendcli/lend/policy"
	"github.com/lendcli/lend/policy/compare"
	"github.com/lendcli/lend/policy/file"
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
// none of it. Tests of the file that want the peer to have it go as well.
func Deny(filename string, data []byte, d Removal, source policy.Contracts) (Result, error) {
	w, err := begin(filename, data, source)
	if err != nil {
		return Result{}, err
	}
	f := w.before.Content()
	id, err := w.peer(d.Peer)
	if err != nil {
		return Result{}, err
	}
	if !slices.ContainsFunc(f.Rules, func(r *file.Rule) bool { return d.reachedBy(f, r, id) }) {
		return Result{}, fmt.Errorf("%w: %s", ErrNothing, d.nothing(f))
	}
	if err := w.takeAway(id, d); err != nil {
		return Result{}, err
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
	f := r.Policy.Content()
	for _, rule := range f.Rules {
		if d.reachedBy(f, rule, id) {
			return refuse("change it by hand", "the rule %s (%s) would still let %s", name.Quote(rule.Name), rule.Position, d.Peer)
		}
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

// reachedBy tells whether a rule gives the peer something that shall go. A rule counts
// by its words, whichever Connectors are installed and whatever the time is.
func (d Removal) reachedBy(f *file.File, r *file.Rule, id name.PeerID) bool {
	return r.Connector == d.Connector && slices.ContainsFunc(r.Commands, func(g *file.Grant) bool { return d.has(g.Name) }) &&
		(r.Peers[id] || throughIssuer(f, r, id) != nil)
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
