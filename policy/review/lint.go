package review

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lendcli/lend/policy/file"
	"github.com/lendcli/lend/policy/lint"
	"github.com/lendcli/lend/policy/strict"
	"github.com/lendcli/lend/policy/surface"
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
	Level    Level           `json:"level"`
	Position strict.Position `json:"position"`
	Message  string          `json:"message"`
	Hint     string          `json:"hint,omitempty"`
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
func Lint(f *file.File, source Contracts) []Finding {
	l := &linter{File: f, source: source, usedPeers: map[name.PeerID]bool{}}
	l.lintIssuers()
	l.lintLimits(f.Doc.Root.Get("limits"))
	for _, r := range f.Rules {
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

// Contracts answers with the contract of the current route of a Connector, as that
// of package policy does.
type Contracts interface {
	Contract(key name.ConnectorKey, version name.Version, connection name.ConnectionID) (argv.Contract, string, error)
}

var errNoSource = errors.New("no contracts to look at")

type linter struct {
	*file.File
	source    Contracts
	findings  []Finding
	usedPeers map[name.PeerID]bool
}

func (l *linter) add(level Level, at strict.Position, message, hint string) {
	f := Finding{level, at, message, hint}
	if !slices.Contains(l.findings, f) {
		l.findings = append(l.findings, f)
	}
}

func (l *linter) warn(n *strict.Node, message, hint string) {
	l.add(LevelWarning, l.Doc.Position(n), message, hint)
}

func (l *linter) lintIssuers() {
	for _, i := range l.Issuers {
		n := l.Doc.Root.Get("issuers").Get(i.Name.String())
		if i.HoldersAny {
			l.warn(n.Get("holders"), fmt.Sprintf("%s may name holders that this file does not know: strangers may connect", i.Name), "list the peers")
		}
		if i.HoldersAny && i.MaxDepth > 0 {
			l.warn(n.Get("max_depth"), "whoever holds a lease may pass it on to anybody", "list the peers, or leave max_depth out")
		}
		if i.MaxLife > time.Hour {
			l.warn(n.Get("max_life"), "leases may live for "+file.ShowDuration(i.MaxLife)+": a stolen key is good for as long", "1h or less")
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

func (l *linter) lintRule(r *file.Rule) {
	for id := range r.Peers {
		l.usedPeers[id] = true
	}
	for _, i := range l.Issuers {
		if (r.Issuers == nil || r.Issuers[i.ID]) && !i.MayGrant(r.Connector) && r.Issuers != nil {
			l.warn(r.Node.Get("issuers"), fmt.Sprintf("%s may not grant %s: the rule never holds under its leases", i.Name, r.Connector), "add it to the issuer's connectors")
		}
	}
	l.lintLimits(r.Node.Get("limits"))
	for _, v := range r.Versions {
		contract, err := contractOf(l.File, r, v, l.source)
		if err != nil {
			if l.source != nil {
				l.warn(r.Node.Get("connector"), fmt.Sprintf("%s (version %s) has no current route here, so its commands cannot be checked: %v", r.Connector, v, err), "add the Connector, or name one of its connections (connection:)")
			}
			continue
		}
		for _, g := range r.Commands {
			l.lintGrant(r, g, contract)
		}
	}
}

func (l *linter) lintGrant(r *file.Rule, g *file.Grant, contract argv.Contract) {
	what := r.Connector.String() + " " + g.Name.String()
	c, err := surface.Base(l.File, r.Connector, g.Name, contract)
	if errors.Is(err, surface.ErrTwice) {
		l.add(LevelError, l.Doc.Position(l.Doc.Root.Get("commands").Key(r.Connector.String())), fmt.Sprintf("the manifest of %s declares its commands: the policy may not", r.Connector), "narrow them in the rules instead")
		return
	}
	if err != nil {
		l.add(LevelError, l.Doc.Position(g.Key), fmt.Sprintf("%s has no command %s", r.Connector, name.Quote(g.Name.String())), strict.Meant(g.Name.String(), l.commandNames(r.Connector, contract)))
		return
	}
	if !l.lintNarrowing(g, c) {
		return
	}
	narrowed, err := surface.Narrowed(l.File, r, g, contract)
	if err == nil {
		_, err = narrowed.Compile(contract)
	}
	for _, e := range file.DeclarationErrors(err) {
		l.add(LevelError, l.place(g, e.Path), what+": "+e.Error(), "")
	}
	if err != nil {
		return
	}
	for _, q := range narrowed.Parameters {
		if acceptsNothing(q) {
			l.add(LevelError, l.place(g, "parameters."+q.Name.String()), fmt.Sprintf("%s: %s accepts nothing: what the rule says and what the command declares have no value in common", what, q.Name), "")
		}
	}
	for _, risk := range lint.Command(lint.Name(contract.Command, r.Connector.String()), contract.Arguments, narrowed) {
		level := LevelWarning
		if risk.Error {
			level = LevelError
		}
		l.add(level, l.place(g, "parameters."+risk.Parameter), what+": "+risk.Message, risk.Hint)
	}
	if g.Record != nil {
		l.lintRecorded(g, narrowed, what)
	}
	if lint.ReadsPaths(narrowed) && r.Workspace.IsZero() {
		l.add(LevelError, l.Doc.Position(g.Key), what+": a parameter is a path, and the rule has no workspace: it accepts nothing", "add workspace:")
	}
}

// lintRecorded warns of text that nobody can foresee and that the record would keep.
func (l *linter) lintRecorded(g *file.Grant, c argv.Command, what string) {
	for _, q := range c.Parameters {
		if q.Stdin != nil || q.Secret {
			continue // neither is recorded
		}
		if slices.ContainsFunc(q.Schemas, func(s argv.Schema) bool { return s.FreeText }) && !lint.Pinned(q) {
			l.warn(g.Record, fmt.Sprintf("%s: what callers say in %s, any text at all, is kept in the record", what, q.Name), "bound it, or do not record the command")
		}
	}
	if c.Rest != nil {
		l.warn(g.Record, what+": the open-ended tail of arguments is kept in the record", "declare parameters instead, or do not record the command")
	}
}

// acceptsNothing tells whether the schemas of a parameter exclude each other, as far
// as that can be seen without trying values.
func acceptsNothing(q argv.Parameter) bool {
	m := merged(q.Schemas)
	return m.Enum != nil && len(m.Enum) == 0 || m.Minimum != nil && m.Maximum != nil && *m.Minimum > *m.Maximum
}

// lintNarrowing reports what a rule says about parameters that does not fit.
func (l *linter) lintNarrowing(g *file.Grant, c argv.Command) bool {
	known := make([]string, 0, len(c.Parameters))
	for _, p := range c.Parameters {
		known = append(known, p.Name.String())
	}
	good := true
	for parameter, n := range g.Narrow {
		if !slices.Contains(known, parameter.String()) {
			hint := strict.Meant(parameter.String(), known)
			if hint == "" {
				hint = "it has " + strings.Join(known, ", ")
			}
			l.add(LevelError, l.Doc.Position(n.Key), fmt.Sprintf("%s has no parameter %s", c.Name, name.Quote(parameter.String())), hint)
			good = false
			continue
		}
		_, err := n.Of(c, parameter)
		said := map[strict.Position]bool{} // what follows from a fault at the same place is not said
		for _, e := range file.DeclarationErrors(err) {
			if at := l.Doc.Position(file.Locate(n.Value, e.Path)); !said[at] {
				l.add(LevelError, at, e.Msg, "")
				said[at] = true
			}
			good = false
		}
	}
	return good
}

// place returns the position of what a rule says about a parameter, else that of
// the command in the rule.
func (l *linter) place(g *file.Grant, path string) strict.Position {
	rest, ok := strings.CutPrefix(path, "parameters.")
	if ok {
		parameter, _, _ := strings.Cut(rest, ".")
		for p, n := range g.Narrow {
			if p.String() == parameter {
				return l.Doc.Position(n.Key)
			}
		}
	}
	return l.Doc.Position(g.Key)
}

func (l *linter) commandNames(key name.ConnectorKey, contract argv.Contract) (out []string) {
	for _, c := range contract.Commands {
		out = append(out, c.Name.String())
	}
	for n := range l.Declared[key] {
		out = append(out, n.String())
	}
	slices.Sort(out)
	return out
}

// lintUnused reports names that no rule has.
func (l *linter) lintUnused() {
	root := l.Doc.Root
	to, workspaces, issuers, commands := map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, r := range l.Rules {
		for _, n := range r.To {
			to[n] = true
		}
		workspaces[r.Workspace.String()] = true
		for _, i := range l.Issuers {
			issuers[i.Name.String()] = issuers[i.Name.String()] || (r.Issuers == nil || r.Issuers[i.ID]) && i.MayGrant(r.Connector)
		}
		for _, g := range r.Commands {
			commands[r.Connector.String()+" "+g.Name.String()] = true
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
		for label, id := range l.Peers {
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
