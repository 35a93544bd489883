package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lendcli/lend/policy/strict"
	"github.com/lendcli/lend/protocol/name"
)

// TestResult is the outcome of one test of the file.
type TestResult struct {
	Name     string   `json:"name"`
	Position Position `json:"position"`
	Passed   bool     `json:"passed"`
	Message  string   `json:"message,omitempty"` // why it failed
}

// test is one test of the file.
type test struct {
	name    string
	pos     Position
	request Request
	allow   bool
	rule    string
	argv    []string // nil: not looked at
	code    string
}

// RunTests runs the tests of the file, in its order. They do not depend on the
// time: an issuer's `until` counts only where a test says `at`.
func (p *Policy) RunTests(source Contracts) []TestResult {
	out := make([]TestResult, 0, len(p.tests))
	for _, t := range p.tests {
		message := t.judge(p.Decide(t.request, source))
		out = append(out, TestResult{Name: t.name, Position: t.pos, Passed: message == "", Message: message})
	}
	return out
}

// judge says what is wrong with a decision, "" if nothing is.
func (t *test) judge(d Decision) string {
	switch {
	case t.allow && !d.Allowed:
		return "denied: " + denial(d)
	case !t.allow && d.Allowed:
		return fmt.Sprintf("allowed by rule %s", name.Quote(d.Rule.Name))
	case t.allow && t.rule != "" && d.Rule.Name != t.rule:
		return fmt.Sprintf("allowed by rule %s, not by %s", name.Quote(d.Rule.Name), name.Quote(t.rule))
	case t.allow && t.argv != nil && !slices.Equal(t.argv, d.Call.Arguments):
		return "the canonical arguments are " + flow(d.Call.Arguments)
	case !t.allow && t.code != "" && d.Reason.String() != t.code:
		return "denied, but with " + denial(d)
	}
	return ""
}

func denial(d Decision) string {
	if d.Err == nil {
		return d.Reason.String()
	}
	return d.Reason.String() + ": " + d.Err.Error()
}

// flow writes texts as a list that a test in the file can have.
func flow(texts []string) string {
	quoted := make([]string, 0, len(texts))
	for _, s := range texts {
		quoted = append(quoted, name.Quote(s))
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

func (l *loader) loadTests(tests *strict.Node) {
	titles := map[string]*strict.Node{}
	for _, n := range tests.Items() {
		l.unique(titles, n.Get("name"), "test")
		t := &test{
			name: n.Get("name").Str(), pos: l.doc.Position(n), allow: n.Get("want").Str() == "allow",
			rule: n.Get("rule").Str(), code: n.Get("code").Str(), argv: strs(n.Get("argv")),
		}
		l.loadRequest(&t.request, n)
		l.checkWant(t, n)
		l.tests = append(l.tests, t)
	}
}

// checkWant reports keys that do not go with the wanted answer.
func (l *loader) checkWant(t *test, n *strict.Node) {
	alien := []string{"code"}
	if !t.allow {
		alien = []string{"rule", "argv"}
	}
	for _, key := range alien {
		if k := n.Key(key); k != nil && n.Get("want").Str() != "" {
			l.doc.Add(k, strict.RuleMeaning, key+" does not go with want: "+n.Get("want").Str(), "")
		}
	}
	if t.rule == "" || n.Get("rule").Str() == "" {
		return
	}
	var known []string
	for _, r := range l.rules {
		known = append(known, r.name)
	}
	if !slices.Contains(known, t.rule) {
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

func (l *loader) loadRequest(r *Request, n *strict.Node) {
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
	if i := l.issuer(r.Issuer); i != nil && !i.Until.IsZero() {
		r.Now = i.Until.Add(-time.Second)
	}
	if at, err := time.Parse(time.RFC3339, n.Get("at").Str()); err == nil {
		r.Now = at
	}
}

func (l *loader) loadRun(r *Request, run *strict.Node) {
	items := run.Items()
	if len(items) < 2 {
		return
	}
	r.Connector, r.Command = parsed(name.ParseConnectorKey, items[0]), parsed(name.ParseCommand, items[1])
	if r.Connector.IsZero() {
		l.doc.Add(items[0], strict.RuleMeaning, "run begins with the key of a Connector, not "+name.Quote(items[0].Text), "")
	}
	if r.Command.IsZero() {
		l.doc.Add(items[1], strict.RuleMeaning, "the second of run is the name of a command, not "+name.Quote(items[1].Text), "")
	}
	for _, a := range items[2:] {
		r.Arguments = append(r.Arguments, a.Text)
	}
}

// loadAsker finds peer and issuer. A peer may be one that the file does not name.
func (l *loader) loadAsker(r *Request, n *strict.Node) {
	if peer := n.Get("peer"); peer.Str() != "" {
		id, named := l.peers[parsed(name.ParseLabel, peer)]
		if !named {
			id = parsed(name.ParsePeerID, peer)
		}
		if id.IsZero() && !named {
			l.unknown(peer, "peer", labels(l.peers))
		}
		r.Peer = id
	}
	switch issuer := n.Get("issuer"); {
	case issuer.Str() != "":
		r.Issuer = l.issuerNamed(issuer, issuer.Text)
	case issuer == nil && len(l.issuers) == 1:
		r.Issuer = l.issuers[0].ID
	case issuer == nil && n.Kind != strict.Bad:
		l.doc.Add(n, strict.RuleMeaning, "the test does not say under whose lease: the file has more than one issuer, or none", "add issuer:")
	}
}

// loadTestVersion takes the version that the rules have for the Connector.
func (l *loader) loadTestVersion(r *Request, n *strict.Node) {
	if v := n.Get("version"); v != nil {
		r.Version = parsed(name.ParseVersion, v)
		return
	}
	versions := map[name.Version]bool{}
	for _, rule := range l.rules {
		if rule.connector == r.Connector {
			for _, v := range rule.versions {
				versions[v] = true
				r.Version = v
			}
		}
	}
	if len(versions) > 1 && n.Kind != strict.Bad {
		l.doc.Add(n, strict.RuleMeaning, "the test does not say which version: the rules have several for "+name.Quote(r.Connector.String()), "add version:")
	}
}
