package replay

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lendcli/lend/policy"
	"github.com/lendcli/lend/policy/compare"
	"github.com/lendcli/lend/policy/file"
	"github.com/lendcli/lend/policy/strict"
	"github.com/lendcli/lend/protocol/name"
)

// Outcome is one request, or one command that was asked for, decided under both files.
type Outcome struct {
	// Effect is Changed where both refuse, for different reasons.
	Effect compare.Effect `json:"effect"`
	Text   string         `json:"text"`
	// Position is that of a test.
	Position strict.Position `json:"position,omitzero"`
	Count    int             `json:"count,omitempty"` // how often it is in the ledger
}

// Report is what is decided otherwise under the new file. No list is nil.
type Report struct {
	Tests   []Outcome `json:"tests"`   // tests of both files
	Asked   []Outcome `json:"asked"`   // commands that were asked for
	Running []Outcome `json:"running"` // operations that would end, or may
}

// Same tells that nothing is.
func (r Report) Same() bool { return len(r.Tests)+len(r.Asked)+len(r.Running) == 0 }

// Corpus is what was asked of the gateway lately, and what runs.
type Corpus struct {
	Now     time.Time
	Asked   []Asked
	Running []Running
}

// Asked is one command that a peer asked for under the leases of an issuer. Its
// arguments are not known.
type Asked struct {
	Issuer, Peer name.PeerID
	Target       policy.Target
	Allowed      bool // it was started
	Count        int
}

// Running is one operation that has not ended.
type Running struct {
	ID           string
	Issuer, Peer name.PeerID
	Target       policy.Target
}

// MaxAsked bounds the different commands of a Corpus that are decided.
const MaxAsked = 10_000

// Policies decides under both policies the tests of both files, what was asked, and
// what runs. The changes are those of compare.Policies: they tell which operations may
// end for their arguments.
func Policies(before, after *policy.Policy, source policy.Contracts, c Corpus, changes []compare.Change) Report {
	r := Report{Tests: []Outcome{}, Asked: []Outcome{}, Running: []Outcome{}}
	r.replayTests(before, after, source)
	p := &replayer{before, after, source, c.Now}
	for _, a := range merged(c.Asked) {
		effect, detail := p.compare(a.Issuer, a.Peer, a.Target)
		if effect == "" {
			continue
		}
		what := "refused"
		if a.Allowed {
			what = "started"
		}
		r.Asked = append(r.Asked, Outcome{
			Effect: effect, Count: a.Count,
			Text: fmt.Sprintf("%s: %s %s (version %s), %s %s: %s", p.nameOf(a.Peer), a.Target.Connector, a.Target.Command, a.Target.Version, what, times(a.Count), detail),
		})
	}
	for _, o := range c.Running {
		if text := p.ends(o, changes); text != "" {
			r.Running = append(r.Running, Outcome{Effect: compare.Narrower, Text: fmt.Sprintf("operation %s of %s, %s %s: %s", name.Quote(o.ID), p.nameOf(o.Peer), o.Target.Connector, o.Target.Command, text)})
		}
	}
	return r
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// merged counts what is the same together, sorted, at most MaxAsked.
func merged(asked []Asked) []Asked {
	type key struct {
		issuer, peer name.PeerID
		target       policy.Target
		allowed      bool
	}
	at := map[key]int{}
	var out []Asked
	for _, a := range asked {
		k := key{a.Issuer, a.Peer, a.Target, a.Allowed}
		if i, known := at[k]; known {
			out[i].Count += max(a.Count, 1)
			continue
		}
		if len(out) == MaxAsked {
			continue
		}
		a.Count = max(a.Count, 1)
		at[k] = len(out)
		out = append(out, a)
	}
	slices.SortStableFunc(out, func(a, b Asked) int {
		return cmp.Or(strings.Compare(a.Target.Connector.String(), b.Target.Connector.String()),
			strings.Compare(a.Target.Command.String(), b.Target.Command.String()), strings.Compare(a.Peer.String(), b.Peer.String()),
			strings.Compare(a.Issuer.String(), b.Issuer.String()))
	})
	return out
}

type replayer struct {
	before, after *policy.Policy
	source        policy.Contracts
	now           time.Time
}

func (p *replayer) nameOf(id name.PeerID) string {
	if n := p.after.Content().NameOf(id); n != id.String() {
		return n
	}
	return p.before.Content().NameOf(id)
}

func (p *replayer) has(in *policy.Policy, issuer, peer name.PeerID, t policy.Target) bool {
	return len(in.Freeze(issuer, peer, p.now, []policy.Target{t}, p.source)) > 0
}

// reason is why a command is refused, whatever its arguments are.
func (p *replayer) reason(in *policy.Policy, issuer, peer name.PeerID, t policy.Target) policy.Reason {
	return in.Decide(policy.Request{
		Issuer: issuer, Peer: peer, Connector: t.Connector, Version: t.Version, Command: t.Command, Now: p.now,
	}, p.source).Reason
}

// compare says what becomes of a command as a whole; "" if nothing does.
func (p *replayer) compare(issuer, peer name.PeerID, t policy.Target) (compare.Effect, string) {
	was, is := p.has(p.before, issuer, peer, t), p.has(p.after, issuer, peer, t)
	switch {
	case is && !was:
		return compare.Wider, "newly allowed"
	case was && !is:
		return compare.Narrower, "ends: " + p.reason(p.after, issuer, peer, t).Code()
	case was && is:
		return "", ""
	}
	before, after := p.reason(p.before, issuer, peer, t), p.reason(p.after, issuer, peer, t)
	if before == after {
		return "", ""
	}
	return compare.Changed, fmt.Sprintf("refused with %s, now with %s", before.Code(), after.Code())
}

// ends says whether an operation would be stopped; "" if not.
func (p *replayer) ends(o Running, changes []compare.Change) string {
	if !p.has(p.after, o.Issuer, o.Peer, o.Target) {
		return "would end: " + p.reason(p.after, o.Issuer, o.Peer, o.Target).Code()
	}
	touched := slices.ContainsFunc(changes, func(c compare.Change) bool {
		return c.Effect != compare.Wider && c.Connector == o.Target.Connector && c.Command == o.Target.Command && (c.PeerID == o.Peer || c.PeerID.IsZero())
	})
	if touched {
		return "may end, if its arguments no longer pass"
	}
	return ""
}

// replayTests decides the tests of both files under both.
func (r *Report) replayTests(before, after *policy.Policy, source policy.Contracts) {
	seen := map[string]bool{}
	for _, p := range []*policy.Policy{after, before} {
		tests := p.Content().Tests
		for i, q := range p.TestRequests() {
			key := fmt.Sprint(tests[i].Name, q)
			if seen[key] {
				continue
			}
			seen[key] = true
			r.replayTest(tests[i], before.Decide(q, source), after.Decide(q, source))
		}
	}
	slices.SortStableFunc(r.Tests, func(a, b Outcome) int { return comparePositions(a.Position, b.Position) })
}

func comparePositions(a, b strict.Position) int {
	return cmp.Or(strings.Compare(a.File, b.File), a.Line-b.Line, a.Column-b.Column)
}

func (r *Report) replayTest(t *file.Test, was, is policy.Decision) {
	add := func(e compare.Effect, detail string) {
		r.Tests = append(r.Tests, Outcome{Effect: e, Text: "test " + name.Quote(t.Name) + ": " + detail, Position: t.Position})
	}
	switch {
	case is.Allowed && !was.Allowed:
		add(compare.Wider, "newly allowed, by rule "+name.Quote(is.Rule.Name))
	case was.Allowed && !is.Allowed:
		add(compare.Narrower, "ends: "+is.Reason.Code())
	case !is.Allowed && was.Reason != is.Reason:
		add(compare.Changed, fmt.Sprintf("refused with %s, now with %s", was.Reason.Code(), is.Reason.Code()))
	case is.Allowed && !slices.Equal(was.Call.Arguments, is.Call.Arguments):
		add(compare.Changed, "runs other arguments")
	case is.Allowed && (was.Connection != is.Connection || was.Workspace != is.Workspace):
		add(compare.Changed, "runs with another connection, or in another workspace")
	}
}
