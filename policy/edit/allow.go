package edit

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/lendcli/lend/policy"
	"github.com/lendcli/lend/policy/compare"
	"github.com/lendcli/lend/policy/file"
	"github.com/lendcli/lend/policy/strict"
	"github.com/lendcli/lend/policy/surface"
	"github.com/lendcli/lend/protocol/argv"
	"github.com/lendcli/lend/protocol/name"
)

// Grant is what one peer shall be allowed.
type Grant struct {
	// Peer is a name of the file, or with ID a new one.
	Peer name.Label
	// ID is the key of a peer that the file does not know; zero for one that it knows.
	ID         name.PeerID
	Connector  name.ConnectorKey
	Version    name.Version
	Commands   []name.Command
	Connection name.ConnectionID // zero: the only one
	Workspace  name.Label        // zero: none
	// Values must be given, and be one of these.
	Values map[name.Parameter][]string
	// Limits are those of the rule, as the file spells them.
	Limits map[string]string
	// Rule is the name of a new rule, or of one that is about this peer alone and gets
	// the commands; "": a new name.
	Rule string
}

// Allow adds what a Grant says. Other errors than *RefusedError are those of policy.Parse
// and ErrNothing, where the peer may do all that already.
func Allow(filename string, data []byte, g Grant, source policy.Contracts) (Result, error) {
	w, err := begin(filename, data, source)
	if err != nil {
		return Result{}, err
	}
	if len(g.Commands) == 0 {
		return Result{}, refuse("", "no command is named")
	}
	for k, v := range g.Limits {
		if !word.MatchString(k) || !word.MatchString(v) {
			return Result{}, refuse("--limit run=30s", "limit %s is not NAME=VALUE of letters and digits", name.Quote(k+"="+v))
		}
	}
	id, err := w.introduce(&g)
	if err != nil {
		return Result{}, err
	}
	commands := make([]string, 0, len(g.Commands))
	for _, c := range g.Commands {
		narrowing, err := w.narrowing(g, c)
		if err != nil {
			return Result{}, err
		}
		commands = append(commands, narrowing)
	}
	if err := w.addRule(g, commands); err != nil {
		return Result{}, err
	}
	r, err := w.finish()
	if err != nil {
		return Result{}, err
	}
	if err := gives(r.Policy, id, g); err != nil {
		return Result{}, err
	}
	if err := only(r.Changes, func(c compare.Change) bool {
		mine := c.PeerID == id && c.Connector == g.Connector && slices.Contains(g.Commands, c.Command)
		// A new peer is a holder of those that may name every peer, and that is shown.
		return mine || !g.ID.IsZero() && (c.PeerID == id || c.Connector.IsZero() && c.PeerID.IsZero())
	}); err != nil {
		return Result{}, err
	}
	if len(r.Changes) == 0 {
		return Result{}, fmt.Errorf("%w: %s may run that already", ErrNothing, g.Peer)
	}
	return r, nil
}

// word is all that a limit can be made of.
var word = regexp.MustCompile(`^[A-Za-z0-9_]+$`)

// limitText writes a limit as the file has it: a time on_disconnect is {keep: TIME}.
func limitText(key, value string) string {
	if key == "on_disconnect" && value != "kill" {
		return "{keep: " + value + "}"
	}
	return value
}

// introduce adds the peer to the file if it is new.
func (w *work) introduce(g *Grant) (name.PeerID, error) {
	f := w.before.Content()
	known, named := f.Peers[g.Peer]
	var names []string
	for label, id := range f.Peers {
		names = append(names, label.String())
		if id == g.ID && !g.ID.IsZero() && label != g.Peer {
			return id, refuse("--to "+label.String(), "that peer is in the file already, as %s", label)
		}
	}
	switch _, group := f.Groups[g.Peer]; {
	case named && (g.ID.IsZero() || g.ID == known):
		return known, nil
	case named:
		return known, refuse("--as ANOTHER-NAME", "%s is another peer in the file: %s", g.Peer, known)
	case group:
		return known, refuse("name a peer of it", "%s is a group", g.Peer)
	case g.ID.IsZero():
		hint := strict.Meant(g.Peer.String(), names)
		if hint == "" {
			hint = "lend id, on the peer's machine, prints its ID: --to ID --as " + g.Peer.String()
		}
		return known, refuse(hint, "no peer of the file is named %s", name.Quote(g.Peer.String()))
	}
	s, err := w.sheet()
	if err != nil {
		return known, err
	}
	spelled := spell(g.Peer.String())
	if key := s.Root.Key("peers"); key != nil {
		s.addPair(key, s.Root.Get("peers"), spelled, g.ID.String())
	} else if s.Flow(s.Root) {
		s.insert(s.Span(s.Root.Values[len(s.Root.Values)-1]).To, ", peers: {"+spelled+": "+g.ID.String()+"}")
	} else {
		s.section("issuers", "peers:\n  "+spelled+": "+g.ID.String()+"\n")
	}
	w.text = s.done()
	return g.ID, nil
}

// section adds a key of the document below another, or at the end.
func (s *sheet) section(after, lines string) {
	n := s.Root.Get(after)
	if n == nil {
		n = s.Root
	}
	s.below(s.Span(n), 0, lines)
}

// narrowing writes one command of a rule, "issue.list: {repo: acme/site}".
func (w *work) narrowing(g Grant, c name.Command) (string, error) {
	f := w.before.Content()
	contract := argv.Contract{Command: g.Connector.String()}
	known := false
	if w.source != nil {
		found, _, err := w.source.Contract(g.Connector, g.Version, g.Connection)
		if known = err == nil; known {
			contract = found
		}
	}
	base, err := surface.Base(f, g.Connector, c, contract)
	if err != nil {
		var names []string
		for _, d := range contract.Commands {
			names = append(names, d.Name.String())
		}
		for n := range f.Declared[g.Connector] {
			names = append(names, n.String())
		}
		hint := strict.Meant(c.String(), names)
		switch {
		case !known:
			hint = "lend connector add, or another --version"
		case hint == "" && len(contract.Commands) == 0:
			hint = fmt.Sprintf("its manifest declares none: declare it in the file, commands: {%s: {%s: …}}, or lend policy preset list", g.Connector, c)
		}
		return "", refuse(hint, "%s (version %s) has no command %s", g.Connector, g.Version, name.Quote(c.String()))
	}
	var parameters []string
	for _, p := range base.Parameters {
		parameters = append(parameters, p.Name.String())
	}
	var parts []string
	for _, n := range sortedParameters(g.Values) {
		at := slices.Index(parameters, n.String())
		if at < 0 {
			hint := strict.Meant(n.String(), parameters)
			if hint == "" && len(parameters) > 0 {
				hint = "it has " + strings.Join(parameters, ", ")
			}
			return "", refuse(hint, "%s has no parameter %s", c, name.Quote(n.String()))
		}
		p := base.Parameters[at]
		takes := surface.Takes(base, p)
		var values []string
		for _, v := range g.Values[n] {
			if !takes(v) {
				return "", refuse("lend connector show "+g.Connector.String(), "%s of %s does not accept %s", n, c, name.Quote(v))
			}
			values = append(values, spellAs(p.Schemas[0].Type, v))
		}
		text := values[0]
		if len(values) > 1 {
			text = flow(values)
		}
		switch {
		case p.Required:
		case len(values) > 1:
			text = "{enum: " + text + ", required: true}"
		default:
			text = "{const: " + text + ", required: true}"
		}
		parts = append(parts, n.String()+": "+text)
	}
	return c.String() + ": {" + strings.Join(parts, ", ") + "}", nil
}

func sortedParameters(m map[name.Parameter][]string) []name.Parameter {
	out := make([]name.Parameter, 0, len(m))
	for n := range m {
		out = append(out, n)
	}
	slices.SortFunc(out, func(a, b name.Parameter) int { return strings.Compare(a.String(), b.String()) })
	return out
}

// addRule writes the rule, or adds to the one that is named.
func (w *work) addRule(g Grant, commands []string) error {
	s, err := w.sheet()
	if err != nil {
		return err
	}
	if list, i := ruleAt(s.Source, g.Rule); i >= 0 {
		if err := w.fits(g); err != nil {
			return err
		}
		rule := list.Values[i]
		for _, c := range commands {
			k, v, _ := strings.Cut(c, ": ")
			s.addPair(rule.Key("commands"), rule.Get("commands"), k, v)
		}
		w.text = s.done()
		return nil
	}
	title := g.Rule
	if title == "" {
		title = unused(w.before, g.Peer.String()+" "+g.Connector.String())
	}
	lines := []string{"name: " + spell(title), "to: " + flow([]string{spell(g.Peer.String())}), "connector: " + spell(g.Connector.String()), "version: " + quoted(g.Version.String())}
	if !g.Connection.IsZero() {
		lines = append(lines, "connection: "+spell(g.Connection.String()))
	}
	if !g.Workspace.IsZero() {
		lines = append(lines, "workspace: "+spell(g.Workspace.String()))
	}
	var limits []string
	for _, k := range limitKeys(g.Limits) {
		limits = append(limits, k+": "+limitText(k, g.Limits[k]))
	}
	s.addRule(lines, commands, limits)
	w.text = s.done()
	return nil
}

func quoted(s string) string { return `"` + s + `"` }

func limitKeys(m map[string]string) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// addRule puts a rule at the end of the list, in the style of the list.
func (s *sheet) addRule(lines, commands, limits []string) {
	list, key := s.Root.Get("allow"), s.Root.Key("allow")
	inline := "{" + strings.Join(lines, ", ") + ", commands: {" + strings.Join(commands, ", ") + "}"
	if len(limits) > 0 {
		inline += ", limits: {" + strings.Join(limits, ", ") + "}"
	}
	inline += "}"
	block := func(column int) string {
		pad := strings.Repeat(" ", column)
		text := pad + "- " + strings.Join(lines, "\n"+pad+"  ") + "\n" + pad + "  commands:\n"
		for _, c := range commands {
			text += pad + "    " + c + "\n"
		}
		if len(limits) > 0 {
			text += pad + "  limits: {" + strings.Join(limits, ", ") + "}\n"
		}
		return text
	}
	switch {
	case list == nil && s.Flow(s.Root):
		s.insert(s.Span(s.Root.Values[len(s.Root.Values)-1]).To, ", allow: ["+inline+"]")
	case list == nil:
		s.atEnd("allow:\n" + block(2))
	case len(list.Values) == 0 && s.Line(s.Span(list).From) == s.Line(s.Span(list).To) && !s.Flow(s.Root):
		column := s.Column(s.Span(key).From) + 2
		s.unfold(s.Span(list))
		s.below(s.Span(list), column, block(column))
	case len(list.Values) == 0:
		s.insert(s.Span(list).From+1, inline)
	case s.Flow(list):
		s.insert(s.Span(list.Values[len(list.Values)-1]).To, ", "+inline)
	default:
		column := s.Column(s.Span(list).From)
		s.below(s.Span(list), column, block(column))
	}
}

// fits refuses to add to a rule that is about something else.
func (w *work) fits(g Grant) error {
	f := w.before.Content()
	at := slices.IndexFunc(f.Rules, func(r *file.Rule) bool { return r.Name == g.Rule })
	r := f.Rules[at]
	where := fmt.Sprintf("the rule %s (%s)", name.Quote(r.Name), r.Position)
	const another = "another --name"
	switch {
	case len(r.To) != 1 || r.To[0] != g.Peer.String():
		return refuse(another, "%s is not about %s alone", where, g.Peer)
	case r.Connector != g.Connector || len(r.Versions) != 1 || r.Versions[0] != g.Version:
		return refuse(another, "%s is not about version %s of %s alone", where, g.Version, g.Connector)
	case r.Connection != g.Connection || r.Workspace != g.Workspace:
		return refuse(another, "%s has another connection or workspace", where)
	case len(g.Limits) > 0:
		return refuse(another+", or without --limit", "%s has limits of its own", where)
	}
	for _, c := range r.Commands {
		if slices.Contains(g.Commands, c.Name) {
			return refuse(another, "%s has %s already", where, c.Name)
		}
	}
	return nil
}

// gives makes sure that the changed file lets the peer do it under some issuer.
func gives(p *policy.Policy, id name.PeerID, g Grant) error {
	f := p.Content()
	var why []string
	for _, i := range f.Issuers {
		switch {
		case !i.MayGrant(g.Connector):
			why = append(why, fmt.Sprintf("%s (%s) may not grant %s: add it to its connectors", i.Name, i.Position, g.Connector))
		case !i.MayName(id):
			why = append(why, fmt.Sprintf("%s (%s) may not name %s: add it to its holders", i.Name, i.Position, g.Peer))
		default:
			if missing := missingUnder(f, i, id, g); missing != "" {
				why = append(why, missing)
				continue
			}
			return nil
		}
	}
	if len(why) == 0 {
		why = []string{"the file has no issuer"}
	}
	return refuse("", "%s could not use it: %s", g.Peer, strings.Join(why, "; "))
}

func missingUnder(f *file.File, i *file.Issuer, id name.PeerID, g Grant) string {
	for _, c := range g.Commands {
		if !reaches(f, i, id, g.Connector, c) {
			return fmt.Sprintf("no rule gives it %s under leases of %s", c, i.Name)
		}
	}
	return ""
}

// reaches tells whether any rule gives a command to a peer under an issuer, whatever
// the time is and whichever Connectors are installed.
func reaches(f *file.File, i *file.Issuer, id name.PeerID, key name.ConnectorKey, c name.Command) bool {
	if !i.MayGrant(key) || !i.MayName(id) {
		return false
	}
	return slices.ContainsFunc(f.Rules, func(r *file.Rule) bool {
		return r.Connector == key && r.Under(i.ID) && (r.Peers[id] || r.HoldersOf[i.ID]) &&
			slices.ContainsFunc(r.Commands, func(g *file.Grant) bool { return g.Name == c })
	})
}
