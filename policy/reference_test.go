package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/lendcli/lend/protocol/argv"
	"github.com/lendcli/lend/protocol/name"
)

// A small world for the reference decision: every choice is one of a few.
type (
	modelIssuer struct {
		any        bool     // holders: any
		holders    []string // peers
		connectors []string // nil: any
		until      bool     // the trust has ended when late requests are made
	}
	modelRule struct {
		to, issuers []string // issuers nil: each
		connector   string
		versions    []string
		repos       map[string][]string // by command; nil: not narrowed
		most        int                 // of n; 0: not narrowed
		forbidN     bool
	}
	model struct {
		issuers map[string]modelIssuer
		groups  map[string][]string
		rules   map[string]modelRule
	}
	modelRequest struct {
		issuer, peer, connector, version, command, repo string
		n                                               int // 0: not said
		stdin, late                                     bool
	}
)

func worldIDs() map[string]string {
	return map[string]string{"owner": ownerID, "desk": deskID, "maria": mariaID, "agent": agentID, "stranger": strangerID}
}

// reference decides by the words of docs/policy.md, without the code of the
// package. It returns the name of the deciding rule.
func reference(m model, q modelRequest) (string, bool) {
	i, known := m.issuers[q.issuer]
	named := q.peer != "stranger"
	switch {
	case !known, i.until && q.late,
		i.connectors != nil && !slices.Contains(i.connectors, q.connector),
		!i.any && i.holders == nil && !named,
		!i.any && i.holders != nil && !slices.Contains(i.holders, q.peer):
		return "", false
	}
	if q.connector != "alpha" || q.command == "other" || q.version == "3" || q.stdin != (q.command == "put") || q.repo != "a" && q.repo != "b" || q.n > 100 {
		return "", false // what the contract itself does not have
	}
	var passing []string
	for title, r := range m.rules {
		isTo := slices.Contains(r.to, q.peer) || slices.Contains(r.to, "holders-of:"+q.issuer)
		for group, members := range m.groups {
			isTo = isTo || slices.Contains(r.to, group) && slices.Contains(members, q.peer)
		}
		repos, has := r.repos[q.command]
		if isTo && has && r.connector == q.connector && slices.Contains(r.versions, q.version) &&
			(r.issuers == nil || slices.Contains(r.issuers, q.issuer)) &&
			(repos == nil || slices.Contains(repos, q.repo)) &&
			(q.n == 0 || !r.forbidN && (r.most == 0 || q.n <= r.most)) {
			passing = append(passing, title)
		}
	}
	if len(passing) == 0 {
		return "", false
	}
	return slices.Min(passing), true
}

func (m model) yaml() string {
	ids := worldIDs()
	var b strings.Builder
	fmt.Fprintf(&b, "policy: 1\npeers: {maria: %s, agent: %s}\nissuers:\n", ids["maria"], ids["agent"])
	for label, i := range m.issuers {
		fmt.Fprintf(&b, "  %s: {id: %s", label, ids[label])
		connectors := "any"
		if i.connectors != nil {
			connectors = "[" + strings.Join(i.connectors, ", ") + "]"
		}
		fmt.Fprintf(&b, ", connectors: %s", connectors)
		if i.any {
			b.WriteString(", holders: any")
		} else if i.holders != nil {
			fmt.Fprintf(&b, ", holders: [%s]", strings.Join(i.holders, ", "))
		}
		if i.until {
			b.WriteString(`, until: "2026-12-31"`)
		}
		b.WriteString("}\n")
	}
	b.WriteString("groups:\n")
	for label, members := range m.groups {
		fmt.Fprintf(&b, "  %s: [%s]\n", label, strings.Join(members, ", "))
	}
	b.WriteString("allow:\n")
	for title, r := range m.rules {
		fmt.Fprintf(&b, "  - {name: %s, to: [%s], connector: %s, version: [\"%s\"]", title, strings.Join(quoted(r.to), ", "), r.connector, strings.Join(r.versions, `", "`))
		if r.issuers != nil {
			fmt.Fprintf(&b, ", issuers: [%s]", strings.Join(r.issuers, ", "))
		}
		b.WriteString(", commands: {")
		for command, repos := range r.repos {
			fmt.Fprintf(&b, "%s: {", command)
			if repos != nil {
				fmt.Fprintf(&b, "repo: [%s], ", strings.Join(repos, ", "))
			}
			if r.forbidN {
				b.WriteString("n: {forbidden: true}, ")
			} else if r.most != 0 {
				fmt.Fprintf(&b, "n: {maximum: %d}, ", r.most)
			}
			b.WriteString("}, ")
		}
		b.WriteString("}}\n")
	}
	return b.String()
}

func quoted(list []string) (out []string) {
	for _, s := range list {
		out = append(out, strconv.Quote(s))
	}
	return out
}

func (q modelRequest) request() Request {
	ids := worldIDs()
	r := Request{
		Issuer: must(parsePeer(ids[q.issuer])), Peer: must(parsePeer(ids[q.peer])), Now: someDay, Stdin: q.stdin,
		Connector: must(name.ParseConnectorKey(q.connector)), Version: must(name.ParseVersion(q.version)), Command: must(name.ParseCommand(q.command)),
		Arguments: []string{"--repo", q.repo},
	}
	if q.late {
		r.Now = someDay.AddDate(1, 0, 0)
	}
	if q.n != 0 {
		r.Arguments = append(r.Arguments, "--n="+strconv.Itoa(q.n))
	}
	return r
}

// worldContracts has the Connector alpha in the versions 1 and 2.
func worldContracts() fakeContracts {
	decl := argv.Declaration{Arguments: []string{"get"}, Parameters: map[string]argv.ParameterDeclaration{
		"repo": {Flag: "--repo", Required: true, Pattern: "[ab]"},
		"n":    {Flag: "--n", Type: argv.TypeInteger, Minimum: ptr(1.0), Maximum: ptr(100.0)},
	}}
	get := must(decl.Command(must(name.ParseCommand("get"))))
	decl.Parameters["text"] = argv.ParameterDeclaration{Stdin: &argv.Stdin{}, Required: true}
	put := must(decl.Command(must(name.ParseCommand("put"))))
	c := argv.Contract{Command: "alpha", Commands: []argv.Command{get, put}}
	return fakeContracts{"alpha@1": c, "alpha@2": c}
}

func ptr[T any](v T) *T { return &v }

func drawModel(t *rapid.T) model {
	some := func(label string, from ...string) []string {
		return rapid.SliceOfNDistinct(rapid.SampledFrom(from), 1, len(from), rapid.ID[string]).Draw(t, label)
	}
	maybe := func(label string, from ...string) []string {
		if rapid.Bool().Draw(t, label+"?") {
			return nil
		}
		return some(label, from...)
	}
	m := model{issuers: map[string]modelIssuer{}, groups: map[string][]string{}, rules: map[string]modelRule{}}
	for _, i := range some("issuers", "owner", "desk") {
		m.issuers[i] = modelIssuer{
			any: rapid.Bool().Draw(t, "any"), holders: maybe("holders", "maria", "agent"),
			connectors: maybe("connectors", "alpha", "beta"), until: rapid.Bool().Draw(t, "until"),
		}
	}
	m.groups["team"] = some("team", "maria", "agent")
	var issuers, to []string
	for i := range m.issuers {
		issuers = append(issuers, i)
	}
	slices.Sort(issuers)
	to = append(to, "maria", "agent", "team")
	for _, i := range issuers {
		to = append(to, "holders-of:"+i)
	}
	for n := range rapid.IntRange(1, 5).Draw(t, "rules") {
		r := modelRule{
			to: some("to", to...), issuers: maybe("under", issuers...), versions: some("versions", "1", "2", "3"), repos: map[string][]string{},
			connector: rapid.SampledFrom([]string{"alpha", "alpha", "alpha", "beta"}).Draw(t, "connector"),
			most:      rapid.SampledFrom([]int{0, 0, 10, 60}).Draw(t, "most"), forbidN: rapid.IntRange(0, 3).Draw(t, "forbid") == 0,
		}
		for _, c := range some("commands", "get", "put", "other") {
			r.repos[c] = maybe("repos", "a", "b")
		}
		m.rules[string(rune('z'-n))] = r
	}
	return m
}

// drawRequest draws a request near one rule of the model, so that some pass.
func drawRequest(t *rapid.T, m model) modelRequest {
	var titles, issuers, commands []string
	for title := range m.rules {
		titles = append(titles, title)
	}
	slices.Sort(titles)
	for i := range m.issuers {
		issuers = append(issuers, i)
	}
	slices.Sort(issuers)
	r := m.rules[rapid.SampledFrom(titles).Draw(t, "near")]
	for c := range r.repos {
		commands = append(commands, c)
	}
	slices.Sort(commands)
	near := func(label string, often []string, all ...string) string {
		if rapid.IntRange(0, 5).Draw(t, label+"?") > 0 {
			all = often
		}
		return rapid.SampledFrom(all).Draw(t, label)
	}
	q := modelRequest{
		issuer: near("issuer", issuers, "owner", "desk"), peer: rapid.SampledFrom([]string{"maria", "agent", "stranger"}).Draw(t, "peer"),
		connector: near("asked", []string{r.connector}, "alpha", "beta"), version: near("version", r.versions, "1", "2", "3"),
		command: near("command", commands, "get", "put", "other"), repo: near("repo", []string{"a", "b"}, "a", "b", "c"),
		n: rapid.SampledFrom([]int{0, 0, 5, 50, 101}).Draw(t, "n"), late: rapid.IntRange(0, 4).Draw(t, "late") == 0,
	}
	q.stdin = (q.command == "put") != (rapid.IntRange(0, 5).Draw(t, "stdin") == 0)
	return q
}

// Decide answers as the reference does, on policies and requests at random; so
// does DecideWithin what was frozen under the same policy; and what was frozen
// under another policy never widens the answer.
func TestDecideAgainstReference(t *testing.T) {
	source := worldContracts()
	allowed := 0
	rapid.Check(t, func(t *rapid.T) {
		m, other := drawModel(t), drawModel(t)
		p, err := Parse("p", []byte(m.yaml()))
		if err != nil {
			t.Fatalf("%v\n%s", err, m.yaml())
		}
		before, err := Parse("p", []byte(other.yaml()))
		if err != nil {
			t.Fatalf("%v\n%s", err, other.yaml())
		}
		for range 20 {
			q := drawRequest(t, m)
			r := q.request()
			rule, want := reference(m, q)
			d := p.Decide(r, source)
			if d.Allowed != want || d.Rule.Name != rule && want {
				t.Fatalf("decide %+v: %v by %q (%s: %v), reference %v by %q\n%s", q, d.Allowed, d.Rule.Name, d.Reason, d.Err, want, rule, m.yaml())
			}
			if want {
				allowed++
			}
			target := []Target{targetOf(r)}
			same := p.DecideWithin(p.Freeze(r.Issuer, r.Peer, r.Now, target, source), r, source)
			if same.Allowed != want {
				t.Fatalf("within its own freeze %+v: %v, want %v", q, same.Allowed, want)
			}
			_, wanted := reference(other, q)
			within := p.DecideWithin(before.Freeze(r.Issuer, r.Peer, r.Now, target, source), r, source)
			if within.Allowed != (want && wanted) {
				t.Fatalf("within another freeze %+v: %v, want %v and %v", q, within.Allowed, want, wanted)
			}
		}
	})
	if allowed < 30 {
		t.Fatalf("only %d requests were allowed: the generator is too narrow", allowed)
	}
}

func TestIssuerEndsWithItsLastDay(t *testing.T) {
	p := mustParse(t, strings.Replace(head, "connectors: any", `connectors: any, until: "2026-06-01"`, 1))
	i, ok := p.Issuer(must(parsePeer(ownerID)))
	if !ok || !i.Trusted(time.Date(2026, 6, 1, 23, 59, 59, 0, time.UTC)) || i.Trusted(time.Date(2026, 6, 2, 0, 0, 0, 0, time.UTC)) || i.Trusted(time.Time{}) {
		t.Fatal("until is the last day, and no time is not a time")
	}
}
