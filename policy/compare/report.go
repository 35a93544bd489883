package compare

import (
	"cmp"
	"slices"
	"strings"

	"github.com/lendcli/lend/policy/strict"
	"github.com/lendcli/lend/protocol/name"
)

// Effect says in which direction something changes.
type Effect string

// The effects.
const (
	Wider    Effect = "wider"    // something is newly allowed
	Narrower Effect = "narrower" // something ends
	Changed  Effect = "changed"  // both, or it cannot be known which
)

// Change is one difference between the files. Empty fields mean that it is about all
// of them: a change of an issuer or of the gateway has no Command.
type Change struct {
	Effect Effect `json:"effect"`
	Text   string `json:"text"` // a sentence
	Brief  string `json:"-"`    // the same for people: long lists and patterns are cut
	// Position is in the new file, but for what ends, which was in the old one.
	Position strict.Position `json:"position"`
	// Peer is a name of one of the files, or "whoever ISSUER names".
	Peer      string            `json:"peer,omitempty"`
	PeerID    name.PeerID       `json:"peerId,omitzero"`   // zero for whoever an issuer names
	Issuers   []string          `json:"issuers,omitempty"` // under whose leases
	Connector name.ConnectorKey `json:"connector,omitzero"`
	Versions  []string          `json:"versions,omitempty"`
	Command   name.Command      `json:"command,omitzero"`
}

// Report is what differs between two files: what is wider first, then by position and
// text.
type Report []Change

// Widens tells whether anything is newly allowed, or may be.
func (r Report) Widens() bool {
	return slices.ContainsFunc(r, func(c Change) bool { return c.Effect != Narrower })
}

// Narrows tells whether anything ends, or may.
func (r Report) Narrows() bool {
	return slices.ContainsFunc(r, func(c Change) bool { return c.Effect != Wider })
}

func sortChanges(changes []Change) []Change {
	order := func(e Effect) int { return slices.Index([]Effect{Wider, Changed, Narrower}, e) }
	slices.SortStableFunc(changes, func(a, b Change) int {
		return cmp.Or(
			order(a.Effect)-order(b.Effect), a.Position.Line-b.Position.Line, a.Position.Column-b.Position.Column,
			strings.Compare(a.Text, b.Text),
		)
	})
	return changes
}
