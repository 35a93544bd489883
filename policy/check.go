package policy

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lendcli/lend/policy/lint"
	"github.com/lendcli/lend/policy/strict"
	"github.com/lendcli/lend/protocol/argv"
	"github.com/lendcli/lend/protocol/name"
)

// Level says how bad a Finding is.
type Level string

// The levels. A policy with an error is not to be served.
const (
	LevelError   Level = "error"
	LevelWarning Level = "warning"
)

// Finding is one thing that Lint has to say about the file.
type Finding struct {
	Level    Level    `json:"level"`
	Position Position `json:"position"`
	Message  string   `json:"message"`
	Hint     string   `json:"hint,omitempty"`
}

// String returns file:line:column: level: message (hint).
func (f Finding) String() string {
	s := fmt.Sprintf("%s: %s: %s", f.Position, f.Level, f.Message)
	if f.Hint != "" {
		s += " (" + f.Hint + ")"
	}
	return s
}

// Lint says what does not fit the Connectors' contracts (errors) and what is risky
// (warnings, and errors where a grant amounts to a shell), each once, in the order
// of the file. With a nil source only what the file itself declares is looked at.
func (p *Policy) Lint(source Contracts) []Finding {
	l := &linter{Policy: p, source: source, usedPeers: map[name.PeerID]bool{}}
	l.lintIssuers()
	l.lintLimits(p.doc.Root.Get("limits"))
	for _, r := range p.rules {
		l.lintRule(r)
	}
	l.lintUnused()
	slices.SortStableFunc(l.findings, func(a, b Finding) int {
		if a.Position.Line != b.Position.Line {
			return a.Position.Line - b.Position.Line
		}
		return a.Position.Column - b.Position.Column
	})
	return l.findings
}

type linter struct {
	*Policy
	source    Contracts
	findings  []Finding
	usedPeers map[name.PeerID]bool
}

func (l *linter) add(level Level, at Position, message, hint string) {
	f := Finding{level, at, message, hint}
	if !slices.Contains(l.findings, f) {
		l.findings = append(l.findings, f)
	}
}

func (l *linter) warn(n *strict.Node, message, hint string) {
	l.add(LevelWarning, l.doc.Position(n), message, hint)
}

func (l *linter) lintIssuers() {
	for _, i := range l.issuers {
		n := l.doc.Root.Get("issuers").Get(i.Name.String())
		if i.HoldersAny {
			l.warn(n.Get("holders"), fmt.Sprintf("%s may name holders that this file does not know: strangers may connect", i.Name), "list the peers")
		}
		if i.MaxLife > time.Hour {
			l.warn(n.Get("max_life"), "leases may live for "+showDuration(i.MaxLife)+": a stolen key is good for as long", "1h or less")
		}
	}
}

func (l *linter) lintLimits(n *strict.Node) {
	for _, key := range []string{"stdout", "stderr"} {
		if v := n.Get(key); v.Str() == "unlimited" {
			l.warn(v, key+" is unlimited", "name a size")
		}
	}
}

// contract returns what a rule's commands are declared by. Without a source, what
// the file declares itself can be looked at nevertheless.
func (l *linter) contract(r *rule, v name.Version) (argv.Contract, error) {
	if l.source != nil {
		c, _, err := l.source.Contract(r.connector, v, r.connection)
		return c, err
	}
	if len(l.declared[r.connector]) > 0 {
		return argv.Contract{}, nil
	}
	return argv.Contract{}, errNoSource
}

func (l *linter) lintRule(r *rule) {
	for id := range r.peers {
		l.usedPeers[id] = true
	}
	for _, i := range l.issuers {
		if (r.issuers == nil || r.issuers[i.ID]) && !i.MayGrant(r.connector) && r.issuers != nil {
			l.warn(r.node.Get("issuers"), fmt.Sprintf("%s may not grant %s: the rule never holds under its leases", i.Name, r.connector), "add it to the issuer's connectors")
		}
	}
	l.lintLimits(r.node.Get("limits"))
	for _, v := range r.versions {
		contract, err := l.contract(r, v)
		if err != nil {
			if l.source != nil {
				l.warn(r.node.Get("connector"), fmt.Sprintf("%s (version %s) has no current route here, so its commands cannot be checked: %v", r.connector, v, err), "add the Connector, or the connection")
			}
			continue
		}
		for _, g := range r.commands {
			l.lintGrant(r, g, contract)
		}
	}
}

func (l *linter) lintGrant(r *rule, g *grant, contract argv.Contract) {
	what := r.connector.String() + " " + g.name.String()
	c, err := l.base(r.connector, g.name, contract)
	if errors.Is(err, errTwice) {
		l.add(LevelError, l.doc.Position(l.doc.Root.Get("commands").Key(r.connector.String())), fmt.Sprintf("the manifest of %s declares its commands: the policy may not", r.connector), "narrow them in the rules instead")
		return
	}
	if err != nil {
		l.add(LevelError, l.doc.Position(g.key), fmt.Sprintf("%s has no command %s", r.connector, name.Quote(g.name.String())), strict.Meant(g.name.String(), l.commandNames(r.connector, contract)))
		return
	}
	if !l.lintNarrowing(g, c) {
		return
	}
	narrowed, err := l.narrowed(r, g, contract)
	if err == nil {
		_, err = narrowed.Compile(contract)
	}
	for _, e := range declarationErrors(err) {
		l.add(LevelError, l.place(g, e.Path), what+": "+e.Error(), "")
	}
	if err != nil {
		return
	}
	for _, risk := range lint.Command(lint.Name(contract.Command, r.connector.String()), contract.Arguments, narrowed) {
		level := LevelWarning
		if risk.Error {
			level = LevelError
		}
		l.add(level, l.place(g, "parameters."+risk.Parameter), what+": "+risk.Message, risk.Hint)
	}
	if lint.ReadsPaths(narrowed) && r.workspace.IsZero() {
		l.add(LevelError, l.doc.Position(g.key), what+": a parameter is a path, and the rule has no workspace: it accepts nothing", "add workspace:")
	}
}

// lintNarrowing reports what a rule says about parameters that does not fit.
func (l *linter) lintNarrowing(g *grant, c argv.Command) bool {
	known := make([]string, 0, len(c.Parameters))
	for _, p := range c.Parameters {
		known = append(known, p.Name.String())
	}
	good := true
	for parameter, n := range g.narrow {
		if !slices.Contains(known, parameter.String()) {
			hint := strict.Meant(parameter.String(), known)
			if hint == "" {
				hint = "it has " + strings.Join(known, ", ")
			}
			l.add(LevelError, l.doc.Position(n.key), fmt.Sprintf("%s has no parameter %s", c.Name, name.Quote(parameter.String())), hint)
			good = false
			continue
		}
		_, err := n.of(c, parameter)
		for _, e := range declarationErrors(err) {
			l.add(LevelError, l.doc.Position(locate(n.value, e.Path)), e.Msg, "")
			good = false
		}
	}
	return good
}

// place returns the position of what a rule says about a parameter, else that of
// the command in the rule.
func (l *linter) place(g *grant, path string) Position {
	rest, ok := strings.CutPrefix(path, "parameters.")
	if ok {
		parameter, _, _ := strings.Cut(rest, ".")
		for p, n := range g.narrow {
			if p.String() == parameter {
				return l.doc.Position(n.key)
			}
		}
	}
	return l.doc.Position(g.key)
}

func (l *linter) commandNames(key name.ConnectorKey, contract argv.Contract) (out []string) {
	for _, c := range contract.Commands {
		out = append(out, c.Name.String())
	}
	for n := range l.declared[key] {
		out = append(out, n.String())
	}
	slices.Sort(out)
	return out
}

// lintUnused reports names that no rule has.
func (l *linter) lintUnused() {
	root := l.doc.Root
	to, workspaces, issuers, commands := map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, r := range l.rules {
		for _, n := range r.toNames {
			to[n] = true
		}
		workspaces[r.workspace.String()] = true
		for _, i := range l.issuers {
			issuers[i.Name.String()] = issuers[i.Name.String()] || (r.issuers == nil || r.issuers[i.ID]) && i.MayGrant(r.connector)
		}
		for _, g := range r.commands {
			commands[r.connector.String()+" "+g.name.String()] = true
		}
	}
	unused := func(n *strict.Node, used func(key string) bool, message string) {
		n.Pairs(func(k, _ *strict.Node) {
			if !used(k.Text) {
				l.warn(k, fmt.Sprintf(message, k.Text), "")
			}
		})
	}
	in := func(m map[string]bool) func(string) bool { return func(k string) bool { return m[k] } }
	unused(root.Get("groups"), in(to), "no rule is about the group %s")
	unused(root.Get("workspaces"), in(workspaces), "no rule uses the workspace %s")
	unused(root.Get("issuers"), in(issuers), "no rule holds under leases of %s")
	unused(root.Get("peers"), func(k string) bool {
		for label, id := range l.peers {
			if label.String() == k {
				return l.usedPeers[id]
			}
		}
		return false
	}, "no rule is about the peer %s")
	root.Get("commands").Pairs(func(connector, cs *strict.Node) {
		unused(cs, func(k string) bool { return commands[connector.Text+" "+k] }, "no rule allows the command "+connector.Text+" %s")
	})
}
