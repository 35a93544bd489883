package file

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lendcli/lend/policy/strict"
	"github.com/lendcli/lend/protocol/argv"
	"github.com/lendcli/lend/protocol/name"
)

// loader turns a document that was checked against the tables into a File. It
// passes over what is Bad, so that one run finds all problems.
type loader struct{ *File }

const (
	defaultLife = time.Hour
	maxLife     = 24 * time.Hour
)

func (l *loader) load() {
	root := l.Doc.Root
	l.loadPeers(root.Get("peers"), root.Get("groups"))
	l.loadIssuers(root.Get("issuers"))
	l.loadWorkspaces(root.Get("workspaces"))
	l.File.Limits = l.loadLimits(root.Get("limits"))
	l.checkLimits(root.Get("limits"))
	l.loadCommands(root.Get("commands"))
	titles := map[string]*strict.Node{}
	for _, n := range root.Get("allow").Items() {
		l.unique(titles, n.Get("name"), "rule")
		l.Rules = append(l.Rules, l.loadRule(n))
	}
	slices.SortStableFunc(l.Rules, func(a, b *Rule) int { return cmp.Compare(a.Name, b.Name) })
	l.loadTests(root.Get("tests"))
}

// unique reports a text that was seen before.
func (l *loader) unique(seen map[string]*strict.Node, n *strict.Node, what string) {
	if n.Str() == "" {
		return
	}
	if first := seen[n.Text]; first != nil {
		l.Doc.Add(n, strict.RuleUnique, fmt.Sprintf("a second %s %s", what, name.Quote(n.Text)), fmt.Sprintf("the first is at line %d", first.Line))
		return
	}
	seen[n.Text] = n
}

func (l *loader) loadPeers(peers, groups *strict.Node) {
	l.Peers, l.Groups = map[name.Label]name.PeerID{}, map[name.Label][]name.PeerID{}
	ids := map[string]*strict.Node{}
	peers.Pairs(func(k, v *strict.Node) {
		l.unique(ids, v, "name for the peer")
		label, id := parsed(name.ParseLabel, k), parsed(name.ParsePeerID, v)
		if !label.IsZero() {
			l.Peers[label] = id // zero after a problem: the name is known nevertheless
		}
	})
	groups.Pairs(func(k, v *strict.Node) {
		label := parsed(name.ParseLabel, k)
		if _, taken := l.Peers[label]; taken {
			l.Doc.Add(k, strict.RuleUnique, "a peer has this name: "+name.Quote(k.Text), "give the group another")
			return
		}
		members := []name.PeerID{}
		for _, m := range v.Items() {
			if id, ok := l.Peers[parsed(name.ParseLabel, m)]; ok {
				members = append(members, id)
				continue
			}
			l.unknown(m, "peer", labels(l.Peers))
		}
		l.Groups[label] = members
	})
}

// parsed returns the checked value of a text, zero for anything else.
func parsed[T any](parse func(string) (T, error), n *strict.Node) T {
	var zero T
	if n.Str() == "" {
		return zero
	}
	v, err := parse(n.Text)
	if err != nil {
		return zero
	}
	return v
}

func labels[V any](m map[name.Label]V) []string {
	var out []string
	for l := range m {
		out = append(out, l.String())
	}
	slices.Sort(out)
	return out
}

func (l *loader) unknown(n *strict.Node, what string, known []string) {
	if n.Str() != "" {
		l.Doc.Add(n, strict.RuleReference, fmt.Sprintf("no %s is named %s", what, name.Quote(n.Text)), strict.Meant(n.Text, known))
	}
}

// members resolves the name of a peer or a group.
func (l *loader) members(n *strict.Node) []name.PeerID {
	label := parsed(name.ParseLabel, n)
	if id, ok := l.Peers[label]; ok {
		return []name.PeerID{id}
	}
	ids, ok := l.Groups[label]
	if !ok {
		l.unknown(n, "peer or group", append(labels(l.Peers), labels(l.Groups)...))
	}
	return ids
}

func (l *loader) loadIssuers(issuers *strict.Node) {
	ids := map[string]*strict.Node{}
	issuers.Pairs(func(k, v *strict.Node) {
		l.unique(ids, v.Get("id"), "issuer with the ID")
		i := &Issuer{
			Name: parsed(name.ParseLabel, k), ID: parsed(name.ParsePeerID, v.Get("id")),
			MaxLife: l.loadDuration(v.Get("max_life"), maxLife), MaxDepth: v.Get("max_depth").Integer(), Position: l.Doc.Position(k),
		}
		if i.MaxLife == 0 {
			i.MaxLife = defaultLife
		}
		i.AnyConnector = v.Get("connectors").Str() == "any"
		for _, c := range v.Get("connectors").Items() {
			i.Connectors = append(i.Connectors, parsed(name.ParseConnectorKey, c))
		}
		l.loadHolders(i, v.Get("holders"))
		if day, err := time.Parse(time.DateOnly, v.Get("until").Str()); err == nil {
			i.Until = day.AddDate(0, 0, 1)
		}
		l.Issuers = append(l.Issuers, i)
	})
	slices.SortFunc(l.Issuers, func(a, b *Issuer) int { return compareLabels(a.Name, b.Name) })
}

func (l *loader) loadHolders(i *Issuer, n *strict.Node) {
	i.HoldersAny = n.Str() == "any"
	if n == nil {
		for _, id := range l.Peers {
			i.Holders = append(i.Holders, id)
		}
	}
	for _, h := range n.Items() {
		i.Holders = append(i.Holders, l.members(h)...)
	}
	slices.SortFunc(i.Holders, comparePeers)
	i.Holders = slices.Compact(i.Holders)
}

func (l *loader) loadDuration(n *strict.Node, most time.Duration) time.Duration {
	d, err := time.ParseDuration(n.Str())
	if err != nil {
		return 0
	}
	if d > most {
		l.Doc.Add(n, strict.RuleMeaning, fmt.Sprintf("%s is more than %s", n.Text, ShowDuration(most)), "")
	}
	return d
}

func (l *loader) loadWorkspaces(workspaces *strict.Node) {
	workspaces.Pairs(func(k, v *strict.Node) {
		l.Workspaces = append(l.Workspaces, Workspace{Name: parsed(name.ParseLabel, k), Path: v.Get("path").Str(), Position: l.Doc.Position(k)})
	})
	slices.SortFunc(l.Workspaces, func(a, b Workspace) int { return compareLabels(a.Name, b.Name) })
}

func (l *loader) loadCommands(commands *strict.Node) {
	l.Declared = map[name.ConnectorKey]map[name.Command]*Declared{}
	commands.Pairs(func(connector, cs *strict.Node) {
		byName := map[name.Command]*Declared{}
		cs.Pairs(func(k, v *strict.Node) {
			n := parsed(name.ParseCommand, k)
			byName[n] = &Declared{Command: l.loadDeclaration(n, v), Key: k}
		})
		l.Declared[parsed(name.ParseConnectorKey, connector)] = byName
	})
}

func (l *loader) loadDeclaration(n name.Command, node *strict.Node) argv.Command {
	var d argv.Declaration
	if node.Kind == strict.Bad || node.Get("arguments").Items() == nil {
		return argv.Command{}
	}
	if err := node.Decode(&d); err != nil {
		if l.Doc.Err() == nil {
			l.Doc.Add(node, "", "this is not a declaration of a command", "")
		}
		return argv.Command{}
	}
	c, err := d.Command(n)
	l.report(node, "commands."+n.String()+".", err)
	return c
}

// report puts each *argv.DeclarationError at the node that its path names.
func (l *loader) report(node *strict.Node, prefix string, err error) {
	for _, e := range DeclarationErrors(err) {
		l.Doc.Add(Locate(node, strings.TrimPrefix(e.Path, prefix)), strict.RuleMeaning, e.Msg, "")
	}
}

// DeclarationErrors takes a joined error apart; what is not of the grammar becomes
// one without a path.
func DeclarationErrors(err error) []*argv.DeclarationError {
	var joined interface{ Unwrap() []error }
	var one *argv.DeclarationError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &joined):
		var out []*argv.DeclarationError
		for _, e := range joined.Unwrap() {
			out = append(out, DeclarationErrors(e)...)
		}
		return out
	case errors.As(err, &one):
		return []*argv.DeclarationError{one}
	}
	return []*argv.DeclarationError{{Msg: err.Error()}}
}

// Locate follows "parameters.repo.enum[2]" as far as it goes.
func Locate(n *strict.Node, path string) *strict.Node {
	for path != "" {
		segment, rest, _ := strings.Cut(path, ".")
		key, _, _ := strings.Cut(segment, "[")
		next := n.Get(key)
		if next == nil || next.Kind == strict.Bad {
			return n
		}
		n, path = next, rest
	}
	return n
}

func (l *loader) loadRule(n *strict.Node) *Rule {
	r := &Rule{
		Name: n.Get("name").Str(), Position: l.Doc.Position(n), Node: n,
		Peers: map[name.PeerID]bool{}, HoldersOf: map[name.PeerID]bool{},
		Connector:  parsed(name.ParseConnectorKey, n.Get("connector")),
		Connection: parsed(name.ParseConnectionID, n.Get("connection")),
		Workspace:  parsed(name.ParseLabel, n.Get("workspace")),
		Limits:     l.loadLimits(n.Get("limits")),
	}
	l.loadTo(r, n.Get("to"))
	if issuers := n.Get("issuers"); issuers != nil {
		r.Issuers = map[name.PeerID]bool{}
		for _, i := range issuers.Items() {
			r.Issuers[l.issuerNamed(i, i.Text)] = true
		}
	}
	if v := parsed(name.ParseVersion, n.Get("version")); !v.IsZero() {
		r.Versions = []name.Version{v}
	}
	for _, v := range n.Get("version").Items() {
		r.Versions = append(r.Versions, parsed(name.ParseVersion, v))
	}
	if !r.Workspace.IsZero() && !slices.ContainsFunc(l.Workspaces, func(w Workspace) bool { return w.Name == r.Workspace }) {
		l.unknown(n.Get("workspace"), "workspace", workspaceNames(l.Workspaces))
	}
	l.loadGrants(r, n.Get("commands"))
	l.loadRecorded(r, n.Get("record_arguments"))
	l.checkLowers(r, n.Get("limits"))
	return r
}

func workspaceNames(ws []Workspace) (out []string) {
	for _, w := range ws {
		out = append(out, w.Name.String())
	}
	return out
}

func (l *loader) loadTo(r *Rule, to *strict.Node) {
	for _, n := range to.Items() {
		r.To = append(r.To, n.Text)
		if issuer, ok := strings.CutPrefix(n.Text, holdersOf); ok {
			r.HoldersOf[l.issuerNamed(n, issuer)] = true
			continue
		}
		for _, id := range l.members(n) {
			r.Peers[id] = true
		}
	}
	delete(r.Peers, name.PeerID{})
	delete(r.HoldersOf, name.PeerID{})
}

// issuerNamed returns the issuer's ID, zero after a problem.
func (l *loader) issuerNamed(n *strict.Node, label string) name.PeerID {
	var known []string
	for _, i := range l.Issuers {
		if i.Name.String() == label {
			return i.ID
		}
		known = append(known, i.Name.String())
	}
	if n.Str() != "" {
		l.Doc.Add(n, strict.RuleReference, "no issuer is named "+name.Quote(label), strict.Meant(label, known))
	}
	return name.PeerID{}
}

func (l *loader) loadGrants(r *Rule, commands *strict.Node) {
	commands.Pairs(func(k, v *strict.Node) {
		g := &Grant{Name: parsed(name.ParseCommand, k), Key: k, Narrow: map[name.Parameter]Narrowing{}}
		v.Pairs(func(pk, pv *strict.Node) {
			if pv.Kind != strict.Bad {
				g.Narrow[parsed(name.ParseParameter, pk)] = l.loadNarrowing(pk, pv)
			}
		})
		r.Commands = append(r.Commands, g)
	})
	slices.SortFunc(r.Commands, func(a, b *Grant) int { return cmp.Compare(a.Name.String(), b.Name.String()) })
}

func (l *loader) loadRecorded(r *Rule, commands *strict.Node) {
	for _, n := range commands.Items() {
		var known []string
		found := false
		for _, g := range r.Commands {
			known = append(known, g.Name.String())
			if g.Name.String() == n.Str() {
				g.Record, found = n, true
			}
		}
		if !found {
			l.unknown(n, "command of the rule", known)
		}
	}
}

func (l *loader) loadNarrowing(k, v *strict.Node) Narrowing {
	out := Narrowing{Key: k, Value: v}
	switch v.Kind {
	case strict.List:
		for _, item := range v.Items() {
			out.Declaration.Enum = append(out.Declaration.Enum, item.Value())
		}
	case strict.Map:
		out.Forbidden = v.Get("forbidden").Value() == true
		if out.Forbidden && len(v.Keys) > 1 {
			l.Doc.Add(v, strict.RuleMeaning, "forbidden stands alone", "remove the other keys")
		}
		if err := v.Decode(&out.Declaration); err != nil {
			l.Doc.Add(v, "", "this does not narrow a parameter", "")
		}
	default:
		out.Declaration.Const = v.Value()
	}
	return out
}
