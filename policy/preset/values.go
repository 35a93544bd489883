package preset

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/lendcli/lend/protocol/name"
)

const (
	maxValues = 32
	maxPeers  = 32
)

// Values are what an owner says for a preset.
type Values struct {
	// To are the peers that the rule is about, at least one. The tests of the
	// fragment ask as the first.
	To []Peer
	// Issuer is the one under whose leases the tests ask; zero if the file has only
	// one issuer.
	Issuer name.Label
	// Connector and Version are the Connector's; zero: the preset's own, the newest
	// version that it was made for.
	Connector name.ConnectorKey
	Version   name.Version
	// Set has the values of the placeholders.
	Set map[string][]string
}

// Peer is a peer by its name in the policy. With an ID, the fragment names it there.
type Peer struct {
	Name name.Label
	ID   name.PeerID
}

// ValueError says which value a preset does not take, and why. It does not hold the
// value.
type ValueError struct {
	Placeholder string // "" for the peers
	Msg         string
	Hint        string
}

// Error returns the placeholder and what it wants.
func (e *ValueError) Error() string {
	if e.Placeholder == "" {
		return e.Msg
	}
	return e.Placeholder + ": " + e.Msg
}

// plain is what every value must be, whatever its grammar: nothing in it means
// anything in YAML between double quotes, nor in a template.
var plain = regexp.MustCompile(`^[A-Za-z0-9._/@-]{1,128}$`)

func (p Preset) check(v Values) (map[string][]string, error) {
	if len(v.To) == 0 || len(v.To) > maxPeers {
		return nil, &ValueError{Msg: "it does not say which peers to lend to, 1 to 32", Hint: "--to laptop"}
	}
	for i, peer := range v.To {
		if peer.Name.IsZero() || slices.ContainsFunc(v.To[:i], func(q Peer) bool { return q.Name == peer.Name }) {
			return nil, &ValueError{Msg: "a peer has no name, or is there twice"}
		}
	}
	for _, n := range slices.Sorted(maps.Keys(v.Set)) {
		if !slices.ContainsFunc(p.Placeholders, func(q Placeholder) bool { return q.Name == n }) {
			return nil, &ValueError{Placeholder: name.Quote(n), Msg: "the preset has no such placeholder", Hint: "it has " + strings.Join(p.names(), ", ")}
		}
	}
	out := map[string][]string{}
	for _, q := range p.Placeholders {
		values := v.Set[q.Name]
		if len(values) == 0 && q.Default != "" {
			values = []string{q.Default}
		}
		if err := q.check(values); err != nil {
			return nil, err
		}
		out[q.Name] = values
	}
	return out, nil
}

func (p Preset) names() []string {
	out := make([]string, 0, len(p.Placeholders))
	for _, q := range p.Placeholders {
		out = append(out, q.Name)
	}
	return out
}

// check says whether the placeholder takes the values. The error is a *ValueError.
func (q Placeholder) check(values []string) error {
	refuse := func(format string, args ...any) error {
		return &ValueError{Placeholder: q.Name, Msg: fmt.Sprintf(format, args...), Hint: "--set " + q.Name + "=" + q.Example}
	}
	switch {
	case len(values) == 0 && q.Required:
		return refuse("it has to be set; it takes %s", q.What)
	case len(values) > 1 && !q.List:
		return refuse("it takes one value: %s", q.What)
	case len(values) > maxValues:
		return refuse("it takes at most %d values", maxValues)
	}
	for i, s := range values {
		switch {
		case !plain.MatchString(s) || !q.pattern.MatchString(s):
			return refuse("the value is not what it takes: %s", q.What)
		case slices.Contains(values[:i], s):
			return refuse("a value is there twice")
		}
	}
	return nil
}
