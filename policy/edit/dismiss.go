package edit

import (
	"fmt"
	"maps"
	"slices"

	"github.com/lendcli/lend/policy"
	"github.com/lendcli/lend/policy/compare"
	"github.com/lendcli/lend/policy/review"
	"github.com/lendcli/lend/policy/strict"
	"github.com/lendcli/lend/protocol/name"
)

// Dismiss takes a peer out of a file: its name, and its places in groups, rules and the
// holders of issuers. A group or a rule that was about nobody else goes, and so do the
// tests that are about the peer. Nobody else has less or more than before. Other errors
// than *RefusedError are those of policy.Parse.
func Dismiss(filename string, data []byte, peer name.Label, source policy.Contracts) (Result, error) {
	w, err := begin(filename, data, source)
	if err != nil {
		return Result{}, err
	}
	id, err := w.peer(peer)
	if err != nil {
		return Result{}, err
	}
	s, err := w.sheet()
	if err != nil {
		return Result{}, err
	}
	if err := w.dismiss(s, peer, id); err != nil {
		return Result{}, err
	}
	w.text = s.done()
	r, err := w.finish()
	if err != nil {
		return Result{}, err
	}
	return r, only(r.Changes, func(c compare.Change) bool {
		return c.Effect == compare.Narrower && (c.PeerID == id || c.PeerID.IsZero())
	})
}

// peer is the ID of a peer of the file.
func (w *work) peer(label name.Label) (name.PeerID, error) {
	f := w.before.Content()
	id, known := f.Peers[label]
	if known {
		return id, nil
	}
	if _, group := f.Groups[label]; group {
		return id, refuse("name a peer of it", "%s is a group", label)
	}
	var names []string
	for other := range f.Peers {
		names = append(names, other.String())
	}
	return id, refuse(strict.Meant(label.String(), names), "no peer of the file is named %s", name.Quote(label.String()))
}

func (w *work) dismiss(s *sheet, peer name.Label, id name.PeerID) error {
	f, gone := w.before.Content(), map[string]bool{peer.String(): true}
	note := func(format string, args ...any) {
		w.notes = append(w.notes, review.Prose(fmt.Sprintf(format, args...)))
	}
	// thin takes what is gone out of a list, and tells whether nothing would be left.
	thin := func(list *strict.Node) (empty bool) {
		is := func(n *strict.Node) bool { return gone[n.Text] }
		switch items := list.Items(); {
		case !slices.ContainsFunc(items, is):
			return false
		case !slices.ContainsFunc(items, func(n *strict.Node) bool { return !is(n) }):
			return true
		}
		s.remove(list, func(i int) bool { return is(list.Values[i]) })
		return false
	}
	if groups := s.Root.Get("groups"); groups != nil {
		empty, names := map[int]bool{}, map[string]bool{}
		for i, list := range groups.Values {
			if thin(list) {
				empty[i], names[groups.Keys[i].Text] = true, true
				note("The group %s goes: it had no other member.", groups.Keys[i].Text)
			}
		}
		maps.Copy(gone, names)
		s.drop("groups", empty)
	}
	rules := map[int]bool{}
	for i, n := range s.Root.Get("allow").Items() {
		if thin(n.Get("to")) {
			rules[i] = true
			note("The rule %s goes: it was about nobody else.", name.Quote(n.Get("name").Str()))
		}
	}
	s.drop("allow", rules)
	if issuers := s.Root.Get("issuers"); issuers != nil {
		for i, n := range issuers.Values {
			if list := n.Get("holders"); list != nil && list.Kind == strict.List && thin(list) {
				return refuse(fmt.Sprintf("take the issuer %s away, or change its holders, first", issuers.Keys[i].Text),
					"the issuer %s may name %s alone", issuers.Keys[i].Text, peer)
			}
		}
	}
	for _, i := range f.Issuers {
		if i.HoldersAny {
			note("The issuer %s may name peers that the file does not know, so that machine too.", i.Name)
		}
	}
	tests := map[int]bool{}
	for i, t := range f.Tests {
		if tests[i] = t.Peer == id; tests[i] {
			note("The test %s (%s) goes: it is about %s.", name.Quote(t.Name), t.Position, peer)
		} else {
			delete(tests, i)
		}
	}
	s.drop("tests", tests)
	peers := s.Root.Get("peers")
	s.drop("peers", map[int]bool{slices.IndexFunc(peers.Keys, func(n *strict.Node) bool { return n.Text == peer.String() }): true})
	return nil
}
