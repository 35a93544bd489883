package policy

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

// loader turns a document that was checked against the tables into a Policy. It
// passes over what is Bad, so that one run finds all problems.
type loader struct{ *Policy }

const (
	defaultLife = time.Hour
	maxLife     = 24 * time.Hour
)

func (l *loader) load() {
	root := l.doc.Root
	l.loadPeers(root.Get("peers"), root.Get("groups"))
	l.loadIssuers(root.Get("issuers"))
	l.loadWorkspaces(root.Get("workspaces"))
	l.limits = l.loadLimits(root.Get("limits"))
	l.checkLimits(root.Get("limits"))
	l.loadCommands(root.Get("commands"))
	titles := map[string]*strict.Node{}
	for _, n := range root.Get("allow").Items() {
		l.unique(titles, n.Get("name"), "rule")
		l.rules = append(l.rules, l.loadRule(n))
	}
	slices.SortStableFunc(l.rules, func(a, b *rule) int { return cmp.Compare(a.name, b.name) })
	l.loadTests(root.Get("tests"))
}

// unique reports a text that was seen before.
func (l *loader) unique(seen map[string]*strict.Node, n *strict.Node, what string) {
	if n.Str() == "" {
		return
	}
	if first := seen[n.Text]; first != nil {
		l.doc.Add(n, strict.RuleUnique, fmt.Sprintf("a second %s %s", what, name.Quote(n.Text)), fmt.Sprintf("the first is at line %d", first.Line))
		return
	}
	seen[n.Text] = n
}

func (l *loader) loadPeers(peers, groups *strict.Node) {
	l.peers, l.groups = map[name.Label]name.PeerID{}, map[name.Label][]name.PeerID{}
	ids := map[string]*strict.Node{}
	peers.Pairs(func(k, v *strict.Node) {
		l.unique(ids, v, "name for the peer")
		label, id := parsed(name.ParseLabel, k), parsed(name.ParsePeerID, v)
		if !label.IsZero() {
			l.peers[label] = id // zero after a problem: the name is known nevertheless
		}
	})
	groups.Pairs(func(k, v *strict.Node) {
		label := parsed(name.ParseLabel, k)
		if _, taken := l.peers[label]; taken {
			l.doc.Add(k, strict.RuleUnique, "a peer has this name: "+name.Quote(k.Text), "give the group another")
			return
		}
		members := []name.PeerID{}
		for _, m := range v.Items() {
			if id, ok := l.peers[parsed(name.ParseLabel, m)]; ok {
				members = append(members, id)
				continue
			}
			l.unknown(m, "peer", labels(l.peers))
		}
		l.groups[label] = members
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
		l.doc.Add(n, strict.RuleReference, fmt.Sprintf("no %s is named %s", what, name.Quote(n.Text)), strict.Meant(n.Text, known))
	}
}

// members resolves the name of a peer or a group.
func (l *loader) members(n *strict.Node) []name.PeerID {
	label := parsed(name.ParseLabel, n)
	if id, ok := l.peers[label]; ok {
		return []name.PeerID{id}
	}
	ids, ok := l.groups[label]
	if !ok {
		l.unknown(n, "peer or group", append(labels(l.peers), labels(l.groups)...))
	}
	return ids
}

func (l *loader) loadIssuers(issuers *strict.Node) {
	ids := map[string]*strict.Node{}
	issuers.Pairs(func(k, v *strict.Node) {
		l.unique(ids, v.Get("id"), "issuer with the ID")
		i := &IssuerRule{
			Name: parsed(name.ParseLabel, k), ID: parsed(name.ParsePeerID, v.Get("id")),
			MaxLife: l.loadDuration(v.Get("max_life"), maxLife), Position: l.doc.Position(k),
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
		l.issuers = append(l.issuers, i)
	})
	slices.SortFunc(l.issuers, func(a, b *IssuerRule) int { return compareLabels(a.Name, b.Name) })
}

func (l *loader) loadHolders(i *IssuerRule, n *strict.Node) {
	i.HoldersAny = n.Str() == "any"
	if n == nil {
		for _, id := range l.peers {
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
		l.doc.Add(n, strict.RuleMeaning, fmt.Sprintf("%s is more than %s", n.Text, showDuration(most)), "")
	}
	return d
}

func (l *loader) loadWorkspaces(workspaces *strict.Node) {
	workspaces.Pairs(func(k, v *strict.Node) {
		l.workspaces = append(l.workspaces, Workspace{Name: parsed(name.ParseLabel, k), Path: v.Get("path").Str(), Position: l.doc.Position(k)})
	})
	slices.SortFunc(l.workspaces, func(a, b Workspace) int { return compareLabels(a.Name, b.Name) })
}

func (l *loader) loadCommands(commands *strict.Node) {
	l.declared = map[name.ConnectorKey]map[name.Command]*declared{}
	commands.Pairs(func(connector, cs *strict.Node) {
		byName := map[name.Command]*declared{}
		cs.Pairs(func(k, v *strict.Node) {
			n := parsed(name.ParseCommand, k)
			byName[n] = &declared{command: l.loadDeclaration(n, v), key: k}
		})
		l.declared[parsed(name.ParseConnectorKey, connector)] = byName
	})
}

func (l *loader) loadDeclaration(n name.Command, node *strict.Node) argv.Command {
	var d argv.Declaration
	if node.Kind == strict.Bad || node.Get("arguments").Items() == nil {
		return argv.Command{}
	}
	if err := node.Decode(&d); err != nil {
		if l.doc.Err() == nil {
			l.doc.Add(node, "", "this is not a declaration of a command", "")
		}
		return argv.Command{}
	}
	c, err := d.Command(n)
	l.report(node, "commands."+n.String()+".", err)
	return c
}

// report puts each *argv.DeclarationError at the node that its path names.
func (l *loader) report(node *strict.Node, prefix string, err error) {
	for _, e := range declarationErrors(err) {
		l.doc.Add(locate(node, strings.TrimPrefix(e.Path, prefix)), strict.RuleMeaning, e.Msg, "")
	}
}

// declarationErrors takes a joined error apart; what is not of the grammar becomes
// one without a path.
func declarationErrors(err error) []*argv.DeclarationError {
	var joined interface{ Unwrap() []error }
	var one *argv.DeclarationError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &joined):
		var out []*argv.DeclarationError
		for _, e := range joined.Unwrap() {
			out = append(out, declarationErrors(e)...)
		}
		return out
	case errors.As(err, &one):
		return []*argv.DeclarationError{one}
	}
	return []*argv.DeclarationError{{Msg: err.Error()}}
}

// locate follows "parameters.repo.enum[2]" as far as it goes.
func locate(n *strict.Node, path string) *strict.Node {
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

func (l *loader) loadRule(n *strict.Node) *rule {
	r := &rule{
		name: n.Get("name").Str(), pos: l.doc.Position(n), node: n,
		peers: map[name.PeerID]bool{}, holdersOf: map[name.PeerID]bool{},
		connector:  parsed(name.ParseConnectorKey, n.Get("connector")),
		connection: parsed(name.ParseConnectionID, n.Get("connection")),
		workspace:  parsed(name.ParseLabel, n.Get("workspace")),
		limits:     l.loadLimits(n.Get("limits")),
	}
	l.loadTo(r, n.Get("to"))
	if issuers := n.Get("issuers"); issuers != nil {
		r.issuers = map[name.PeerID]bool{}
		for _, i := range issuers.Items() {
			r.issuers[l.issuerNamed(i, i.Text)] = true
		}
	}
	if v := parsed(name.ParseVersion, n.Get("version")); !v.IsZero() {
		r.versions = []name.Version{v}
	}
	for _, v := range n.Get("version").Items() {
		r.versions = append(r.versions, parsed(name.ParseVersion, v))
	}
	if !r.workspace.IsZero() && !slices.ContainsFunc(l.workspaces, func(w Workspace) bool { return w.Name == r.workspace }) {
		l.unknown(n.Get("workspace"), "workspace", workspaceNames(l.workspaces))
	}
	l.loadGrants(r, n.Get("commands"))
	l.checkLowers(r, n.Get("limits"))
	return r
}

func workspaceNames(ws []Workspace) (out []string) {
	for _, w := range ws {
		out = append(out, w.Name.String())
	}
	return out
}

func (l *loader) loadTo(r *rule, to *strict.Node) {
	for _, n := range to.Items() {
		r.toNames = append(r.toNames, n.Text)
		if issuer, ok := strings.CutPrefix(n.Text, holdersOf); ok {
			r.holdersOf[l.issuerNamed(n, issuer)] = true
			continue
		}
		for _, id := range l.members(n) {
			r.peers[id] = true
		}
	}
	delete(r.peers, name.PeerID{})
	delete(r.holdersOf, name.PeerID{})
}

// issuerNamed returns the issuer's ID, zero after a problem.
func (l *loader) issuerNamed(n *strict.Node, label string) name.PeerID {
	var known []string
	for _, i := range l.issuers {
		if i.Name.String() == label {
			return i.ID
		}
		known = append(known, i.Name.String())
	}
	if n.Str() != "" {
		l.doc.Add(n, strict.RuleReference, "no issuer is named "+name.Quote(label), strict.Meant(label, known))
	}
	return name.PeerID{}
}

func (l *loader) loadGrants(r *rule, commands *strict.Node) {
	commands.Pairs(func(k, v *strict.Node) {
		g := &grant{name: parsed(name.ParseCommand, k), key: k, narrow: map[name.Parameter]narrowing{}}
		v.Pairs(func(pk, pv *strict.Node) {
			if pv.Kind != strict.Bad {
				g.narrow[parsed(name.ParseParameter, pk)] = l.loadNarrowing(pk, pv)
			}
		})
		r.commands = append(r.commands, g)
	})
	slices.SortFunc(r.commands, func(a, b *grant) int { return cmp.Compare(a.name.String(), b.name.String()) })
}

func (l *loader) loadNarrowing(k, v *strict.Node) narrowing {
	out := narrowing{key: k, value: v}
	switch v.Kind {
	case strict.List:
		for _, item := range v.Items() {
			out.declaration.Enum = append(out.declaration.Enum, item.Value())
		}
	case strict.Map:
		out.forbidden = v.Get("forbidden").Value() == true
		if out.forbidden && len(v.Keys) > 1 {
			l.doc.Add(v, strict.RuleMeaning, "forbidden stands alone", "remove the other keys")
		}
		if err := v.Decode(&out.declaration); err != nil {
			l.doc.Add(v, "", "this does not narrow a parameter", "")
		}
	default:
		out.declaration.Const = v.Value()
	}
	return out
}
