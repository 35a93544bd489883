package compare

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/lendcli/lend/policy"
	"github.com/lendcli/lend/policy/file"
	"github.com/lendcli/lend/policy/review"
	"github.com/lendcli/lend/policy/strict"
	"github.com/lendcli/lend/protocol/name"
)

// Policies compares two policies under the same contracts. With a nil source only
// what the files themselves say of commands is compared, which is less exact and
// misses nothing.
func Policies(before, after *policy.Policy, source policy.Contracts) Report {
	c := &comparison{
		old: newSide(before.Content(), source), now: newSide(after.Content(), source),
		memo: map[string][]delta{}, found: map[string]*Change{}, names: map[name.PeerID]string{},
	}
	c.compareIssuers()
	c.comparePeers()
	c.compareGateway()
	for _, id := range c.issuers() {
		c.compareUnder(id)
	}
	out := slices.Clone(c.general)
	for i := range out {
		out[i].Brief = cmp.Or(out[i].Brief, out[i].Text)
	}
	for _, key := range slices.Sorted(maps.Keys(c.found)) {
		out = append(out, c.sentence(c.found[key]))
	}
	return sortChanges(out)
}

type comparison struct {
	old, now *side
	memo     map[string][]delta
	found    map[string]*Change // by what they say, without issuers and versions
	general  []Change
	names    map[name.PeerID]string // of nameOf
}

// delta is a difference that several holders can have.
type delta struct {
	effect Effect
	at     strict.Position
	cell   cell
	verb   string // "may now run"
	detail string // ": …", or "."
}

// issuers are those of both files, each once.
func (c *comparison) issuers() (out []name.PeerID) {
	for _, i := range slices.Concat(c.old.Issuers, c.now.Issuers) {
		if !slices.Contains(out, i.ID) {
			out = append(out, i.ID)
		}
	}
	return out
}

// holders are the peers that the files name, and the zero value for those that
// neither knows.
func (c *comparison) holders() []name.PeerID {
	out := []name.PeerID{{}}
	seen := map[name.PeerID]bool{}
	for _, f := range []*side{c.old, c.now} {
		for _, label := range slices.SortedFunc(maps.Keys(f.Peers), func(a, b name.Label) int { return strings.Compare(a.String(), b.String()) }) {
			if id := f.Peers[label]; !seen[id] {
				seen[id] = true
				out = append(out, id)
			}
		}
	}
	return out
}

// rulesFor are the rules under which an issuer's lease for a holder can be used, in
// the order in which they decide. The zero holder is a stranger.
func (s *side) rulesFor(i *file.Issuer, holder name.PeerID) (out []*file.Rule) {
	if i == nil || holder.IsZero() && !i.HoldersAny || !holder.IsZero() && !i.MayName(holder) {
		return nil
	}
	for _, r := range s.Rules {
		if r.Under(i.ID) && i.MayGrant(r.Connector) && (r.HoldersOf[i.ID] || !holder.IsZero() && r.Peers[holder]) {
			out = append(out, r)
		}
	}
	return out
}

// compareUnder compares what each holder may do under the leases of one issuer.
// Holders for whom the same rules hold have the same deltas; one for whom those hold
// that hold for strangers is not told apart from them.
func (c *comparison) compareUnder(id name.PeerID) {
	was, is := c.old.Issuer(id), c.now.Issuer(id)
	strangers := ""
	for _, holder := range c.holders() {
		before, after := c.old.rulesFor(was, holder), c.now.rulesFor(is, holder)
		key := names(before) + "\x01" + names(after)
		if holder.IsZero() {
			strangers = key
			if was == nil || !was.HoldersAny {
				strangers = "\x01" + names(after)
			}
		} else if key == strangers && (was == nil || was.HoldersAny) == (is == nil || is.HoldersAny) {
			continue
		}
		deltas, known := c.memo[key]
		if !known {
			deltas = c.deltas(before, after)
			c.memo[key] = deltas
		}
		for _, d := range deltas {
			c.add(d, id, holder)
		}
	}
}

func names(rules []*file.Rule) string {
	var b strings.Builder
	for _, r := range rules {
		b.WriteString(r.Name + "\x00")
	}
	return b.String()
}

// add remembers a delta for one holder under one issuer.
func (c *comparison) add(d delta, issuer, holder name.PeerID) {
	change := Change{
		Effect: d.effect, Position: d.at, PeerID: holder, Peer: c.nameOf(holder, issuer),
		Connector: d.cell.target.Connector, Command: d.cell.target.Command, Text: d.verb + "\x00" + place(d.cell) + "\x00" + d.detail,
	}
	key := fmt.Sprintf("%s\x00%s\x00%s\x00%s %s\x00%s", change.Peer, d.at, d.effect, change.Connector, change.Command, change.Text)
	known := c.found[key]
	if known == nil {
		known = &change
		c.found[key] = known
	}
	known.Versions = append(known.Versions, d.cell.target.Version.String())
	known.Issuers = append(known.Issuers, c.issuerName(issuer))
}

// sentence completes a change with the issuers and versions that it holds for.
func (c *comparison) sentence(change *Change) Change {
	out := *change
	slices.Sort(out.Versions)
	slices.Sort(out.Issuers)
	out.Versions, out.Issuers = slices.Compact(out.Versions), slices.Compact(out.Issuers)
	parts := strings.SplitN(out.Text, "\x00", 3)
	subject := out.Peer
	if out.PeerID.IsZero() {
		subject = "W" + strings.TrimPrefix(subject, "w")
	}
	if len(out.Issuers) < len(c.issuers()) && !out.PeerID.IsZero() {
		subject += ", under leases of " + string(review.Listed(out.Issuers)) + ","
	}
	text := review.Prose(fmt.Sprintf("%s %s %s %s (version %s%s)%s", subject, parts[0], out.Connector, out.Command,
		string(review.Listed(out.Versions)), parts[1], parts[2]))
	out.Text, out.Brief = text.Long(), text.Brief()
	return out
}

func place(c cell) (s string) {
	if !c.connection.IsZero() {
		s += ", connection " + c.connection.String()
	}
	if !c.workspace.IsZero() {
		s += ", in the workspace " + c.workspace.String()
	}
	return s
}

// nameOf is a name that means the same in both files: where it does not, or where
// there is none, the ID says who it is.
func (c *comparison) nameOf(id, issuer name.PeerID) string {
	if id.IsZero() {
		return "whoever " + c.issuerName(issuer) + " names"
	}
	if c.names[id] == "" {
		c.names[id] = c.peerName(id)
	}
	return c.names[id]
}

func (c *comparison) peerName(id name.PeerID) string {
	was, is := c.old.NameOf(id), c.now.NameOf(id)
	shown := is
	if shown == id.String() {
		shown = was
	}
	for _, f := range []*side{c.old, c.now} {
		for label, other := range f.Peers {
			if label.String() == shown && other != id {
				return shown + " (" + id.String() + ")"
			}
		}
	}
	return shown
}

func (c *comparison) issuerName(id name.PeerID) string {
	if i := c.now.Issuer(id); i != nil {
		return i.Name.String()
	}
	if i := c.old.Issuer(id); i != nil {
		return i.Name.String()
	}
	return id.String()
}

// deltas compares what two lists of rules give.
func (c *comparison) deltas(before, after []*file.Rule) (out []delta) {
	was, is := c.old.cells(before), c.now.cells(after)
	for k := range allKeys(was.arms, is.arms) {
		out = append(out, cellDeltas(k, was.arms[k], is.arms[k])...)
	}
	for t := range allKeys(was.order, is.order) {
		a, b := was.order[t], is.order[t]
		if len(a) > 1 && len(a) == len(b) && !slices.Equal(a, b) && sameSet(a, b) {
			out = append(out, delta{
				Changed, is.arms[b[0]][0].at,
				cell{target: t},
				"may run",
				fmt.Sprintf(" under several rules, of which another decides where more than one accepts a request: now the one %s.",
					cmp.Or(strings.Replace(place(b[0]), ", ", "with ", 1), "that names neither a connection nor a workspace")),
			})
		}
	}
	return out
}

func sameSet(a, b []cell) bool {
	return !slices.ContainsFunc(a, func(k cell) bool { return !slices.Contains(b, k) })
}

func allKeys[K comparable, V any](a, b map[K]V) map[K]bool {
	out := map[K]bool{}
	for k := range a {
		out[k] = true
	}
	for k := range b {
		out[k] = true
	}
	return out
}
