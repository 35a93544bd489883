package file

import (
	"slices"
	"time"

	"github.com/lendcli/lend/policy/strict"
	"github.com/lendcli/lend/protocol/name"
)

func (l *loader) loadTests(tests *strict.Node) {
	titles := map[string]*strict.Node{}
	for _, n := range tests.Items() {
		l.unique(titles, n.Get("name"), "test")
		t := &Test{
			Name: n.Get("name").Str(), Position: l.Doc.Position(n), Allow: n.Get("want").Str() == "allow",
			Rule: n.Get("rule").Str(), Code: n.Get("code").Str(), Argv: strs(n.Get("argv")),
		}
		l.loadRequest(t, n)
		l.checkWant(t, n)
		l.Tests = append(l.Tests, t)
	}
}

// checkWant reports keys that do not go with the wanted answer.
func (l *loader) checkWant(t *Test, n *strict.Node) {
	alien := []string{"code"}
	if !t.Allow {
		alien = []string{"rule", "argv"}
	}
	for _, key := range alien {
		if k := n.Key(key); k != nil && n.Get("want").Str() != "" {
			l.Doc.Add(k, strict.RuleMeaning, key+" does not go with want: "+n.Get("want").Str(), "")
		}
	}
	if t.Rule == "" || n.Get("rule").Str() == "" {
		return
	}
	var known []string
	for _, r := range l.Rules {
		known = append(known, r.Name)
	}
	if !slices.Contains(known, t.Rule) {
		l.unknown(n.Get("rule"), "rule", known)
	}
}

func strs(n *strict.Node) []string {
	if n == nil {
		return nil
	}
	out := []string{}
	for _, i := range n.Items() {
		out = append(out, i.Text)
	}
	return out
}

func (l *loader) loadRequest(r *Test, n *strict.Node) {
	r.Stdin = n.Get("stdin").Value() == true
	l.loadRun(r, n.Get("run"))
	l.loadAsker(r, n)
	l.loadTestVersion(r, n)
	n.Get("pins").Pairs(func(k, v *strict.Node) {
		if r.Pins == nil {
			r.Pins = map[name.Parameter][]string{}
		}
		r.Pins[parsed(name.ParseParameter, k)] = strs(v)
	})
	if i := l.File.Issuer(r.Issuer); i != nil && !i.Until.IsZero() {
		r.Now = i.Until.Add(-time.Second)
	}
	if at, err := time.Parse(time.RFC3339, n.Get("at").Str()); err == nil {
		r.Now = at
	}
}

func (l *loader) loadRun(r *Test, run *strict.Node) {
	items := run.Items()
	if len(items) < 2 {
		return
	}
	r.Connector, r.Command = parsed(name.ParseConnectorKey, items[0]), parsed(name.ParseCommand, items[1])
	if r.Connector.IsZero() {
		l.Doc.Add(items[0], strict.RuleMeaning, "run begins with the key of a Connector, not "+name.Quote(items[0].Text), "")
	}
	if r.Command.IsZero() {
		l.Doc.Add(items[1], strict.RuleMeaning, "the second of run is the name of a command, not "+name.Quote(items[1].Text), "")
	}
	for _, a := range items[2:] {
		r.Arguments = append(r.Arguments, a.Text)
	}
}

// loadAsker finds peer and issuer. A peer may be one that the file does not name.
func (l *loader) loadAsker(r *Test, n *strict.Node) {
	if peer := n.Get("peer"); peer.Str() != "" {
		id, named := l.Peers[parsed(name.ParseLabel, peer)]
		if !named {
			id = parsed(name.ParsePeerID, peer)
		}
		if id.IsZero() && !named {
			l.unknown(peer, "peer", labels(l.Peers))
		}
		r.Peer = id
	}
	switch issuer := n.Get("issuer"); {
	case issuer.Str() != "":
		r.Issuer = l.issuerNamed(issuer, issuer.Text)
	case issuer == nil && len(l.Issuers) == 1:
		r.Issuer = l.Issuers[0].ID
	case issuer == nil && n.Kind != strict.Bad:
		l.Doc.Add(n, strict.RuleMeaning, "the test does not say under whose lease: the file has more than one issuer, or none", "add issuer:")
	}
}

// loadTestVersion takes the version that the rules have for the Connector.
func (l *loader) loadTestVersion(r *Test, n *strict.Node) {
	if v := n.Get("version"); v != nil {
		r.Version = parsed(name.ParseVersion, v)
		return
	}
	versions := map[name.Version]bool{}
	for _, rule := range l.Rules {
		if rule.Connector == r.Connector {
			for _, v := range rule.Versions {
				versions[v] = true
				r.Version = v
			}
		}
	}
	if len(versions) > 1 && n.Kind != strict.Bad {
		l.Doc.Add(n, strict.RuleMeaning, "the test does not say which version: the rules have several for "+name.Quote(r.Connector.String()), "add version:")
	}
}
