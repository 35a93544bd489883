package review

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/lendcli/lend/policy/file"
	"github.com/lendcli/lend/policy/strict"
	"github.com/lendcli/lend/policy/surface"
	"github.com/lendcli/lend/protocol/argv"
	"github.com/lendcli/lend/protocol/name"
)

// Question asks who may run one command.
type Question struct {
	Connector name.ConnectorKey
	Command   name.Command
	Version   name.Version // zero: any
	// Values are what the caller would say; a rule that accepts another value alone
	// is no answer. A parameter may have several, as a list has.
	Values map[name.Parameter][]string
	// Now is when; an issuer whose last day has passed is none.
	Now time.Time
}

// Holder is one answer: a peer that may run the command under one rule.
type Holder struct {
	// Peer is the file's name, or "whoever ISSUER names": those are peers that the
	// file knows as well as strangers.
	Peer string `json:"peer"`
	// PeerID is zero for whoever an issuer names.
	PeerID     name.PeerID       `json:"peerId,omitzero"`
	Issuers    []string          `json:"issuers"` // under whose leases, sorted; never empty
	Versions   []string          `json:"versions"`
	Connection name.ConnectionID `json:"connection,omitzero"`
	Workspace  name.Label        `json:"workspace,omitzero"`
	What       string            `json:"what"` // narrowing and limits, as Access says them
	Brief      string            `json:"-"`    // What for people
	Rule       string            `json:"rule"`
	Position   strict.Position   `json:"position"` // of the rule
}

// WhoCan returns who may run a command, sorted by peer and rule. A rule that does not
// fit the Connector's contract, or has no route in the source, gives nothing, as it
// does when it is asked; with a nil source only commands that the file declares are
// found.
func WhoCan(f *file.File, source Contracts, q Question) []Holder {
	var out []Holder
	for _, r := range f.Rules {
		if r.Connector != q.Connector {
			continue
		}
		for _, g := range r.Commands {
			if g.Name == q.Command {
				out = append(out, holders(f, r, g, source, q)...)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b Holder) int {
		return cmp.Or(strings.Compare(a.Peer, b.Peer), strings.Compare(a.Rule, b.Rule))
	})
	return out
}

// holders are the answers that one command of a rule gives: one for each peer and
// each text that holds for some of the versions.
func holders(f *file.File, r *file.Rule, g *file.Grant, source Contracts, q Question) (out []Holder) {
	var texts []Prose
	versions := map[Prose][]string{}
	for _, v := range r.Versions {
		if !q.Version.IsZero() && v != q.Version || !takes(f, r, g, v, source, q.Values) {
			continue
		}
		text := Bounds(f, r, g, v, source)
		if versions[text] == nil {
			texts = append(texts, text)
		}
		versions[text] = append(versions[text], v.String())
	}
	under, ids := map[string][]string{}, map[string]name.PeerID{}
	for _, i := range f.Issuers {
		if !i.Trusted(q.Now) {
			continue
		}
		for _, n := range subjectsUnder(f, r, i) {
			under[n] = append(under[n], i.Name.String())
		}
	}
	for label, id := range f.Peers {
		ids[label.String()] = id
	}
	for _, text := range texts {
		for n, issuers := range under {
			out = append(out, Holder{
				Peer: strings.Replace(n, "Whoever ", "whoever ", 1), PeerID: ids[n], Issuers: issuers, Versions: versions[text],
				Connection: r.Connection, Workspace: r.Workspace, What: text.Long(), Brief: text.Brief(), Rule: r.Name, Position: r.Position,
			})
		}
	}
	return out
}

// takes tells whether a command of a rule accepts these values, each by itself.
func takes(f *file.File, r *file.Rule, g *file.Grant, v name.Version, source Contracts, values map[name.Parameter][]string) bool {
	contract, err := contractOf(f, r, v, source)
	if err != nil {
		return false
	}
	s, err := surface.Make(f, r, g, v, contract, "")
	if err != nil {
		return false
	}
	c := s.Command()
	for parameter, said := range values {
		at := slices.IndexFunc(c.Parameters, func(p argv.Parameter) bool { return p.Name == parameter })
		if at < 0 {
			return false
		}
		p := c.Parameters[at]
		if p.List == nil && len(said) > 1 || p.List != nil && len(said) > p.List.MaxItems || p.Schemas[0].Kind == argv.KindPath && r.Workspace.IsZero() {
			return false
		}
		if accepts := surface.Takes(c, p); slices.ContainsFunc(said, func(v string) bool { return !accepts(v) }) {
			return false
		}
	}
	return true
}

// contractOf returns the contract of a rule's Connector; without a source, that of
// the commands that the file declares.
func contractOf(f *file.File, r *file.Rule, v name.Version, source Contracts) (argv.Contract, error) {
	if source != nil {
		c, _, err := source.Contract(r.Connector, v, r.Connection)
		return c, err
	}
	if len(f.Declared[r.Connector]) > 0 {
		return argv.Contract{Command: r.Connector.String()}, nil
	}
	return argv.Contract{}, errNoSource
}

// Targets lists the commands that the rules, the file's declarations and the
// contracts of the rules' Connectors have, as KEY/COMMAND, sorted, each once.
func Targets(f *file.File, source Contracts) []string {
	var out []string
	add := func(key name.ConnectorKey, command name.Command) {
		out = append(out, key.String()+"/"+command.String())
	}
	for key, commands := range f.Declared {
		for n := range commands {
			add(key, n)
		}
	}
	for _, r := range f.Rules {
		for _, g := range r.Commands {
			add(r.Connector, g.Name)
		}
		for _, v := range r.Versions {
			contract, err := contractOf(f, r, v, source)
			if err != nil {
				continue
			}
			for _, c := range contract.Commands {
				add(r.Connector, c.Name)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
