package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/lendcli/lend/protocol/argv"
	"github.com/lendcli/lend/protocol/name"
)

// The second reference, written from docs/policy.md §3 and §5 alone: it says why, by
// which rule and with what, under pins, connections, workspaces, routes and limits; the
// first one (reference_test.go) is about who, groups and several commands.
type (
	sideRule struct {
		name, connector, connection, workspace string
		to, versions, commands, values         []string // values nil: not narrowed
		stdout                                 int64    // KiB
	}
	side struct { // an owner's policy and what is installed
		grants, holders []string // nil: any Connector, every named peer
		rules           []sideRule
		routes          map[string]string // "alpha@1#main" and "alpha@1" to what the contract means
	}
	wish struct {
		issuer, peer, connector, version, command, value string
		pins                                             []string // nil: none
		stdin                                            bool
	}
	pass struct {
		rule, connection, workspace, contract string
		stdout                                int64
	}
)

// decideReference returns the rules that pass, in the order in which they decide, and
// the step that was got to if none does.
func decideReference(s side, q wish) (passing []pass, furthest Reason) {
	if q.issuer != "owner" || s.grants != nil && !slices.Contains(s.grants, q.connector) {
		return nil, ReasonIssuer
	}
	if s.holders != nil && !slices.Contains(s.holders, q.peer) || q.peer == "stranger" {
		return nil, ReasonHolder
	}
	furthest = ReasonRule
	for _, r := range slices.SortedFunc(slices.Values(s.rules), func(a, b sideRule) int { return strings.Compare(a.name, b.name) }) {
		at := strings.TrimSuffix(q.connector+"@"+q.version+"#"+r.connection, "#")
		contract, routed := s.routes[at]
		step := ReasonInternal
		switch {
		case !slices.Contains(r.to, q.peer):
			step = ReasonRule
		case r.connector != q.connector:
			step = ReasonConnector
		case !slices.Contains(r.versions, q.version):
			step = ReasonVersion
		case !slices.Contains(r.commands, q.command):
			step = ReasonCommand
		case !routed:
			step = ReasonRoute
		case !strings.Contains("abcd", q.value), // the grammar
			r.values != nil && !slices.Contains(r.values, q.value),
			q.pins != nil && !slices.Contains(q.pins, q.value):
			step = ReasonArgument
		case q.stdin:
			step = ReasonStdin
		default:
			passing = append(passing, pass{r.name, r.connection, r.workspace, contract, r.stdout})
		}
		furthest = max(furthest, step)
	}
	return passing, furthest
}

// withinReference is what both allow with the same meaning, the lower limit of both.
func withinReference(then, now []pass) (pass, bool) {
	for _, n := range now {
		for _, t := range then {
			if n.connection == t.connection && n.workspace == t.workspace && n.contract == t.contract {
				n.stdout = min(n.stdout, t.stdout)
				return n, true
			}
		}
	}
	return pass{}, false
}

func (s side) policy(t *rapid.T) *Policy {
	list := func(of []string) string { return "[" + strings.Join(of, ", ") + "]" }
	var b strings.Builder
	fmt.Fprintf(&b, "policy: 1\npeers: {maria: %s, agent: %s}\nworkspaces: {site: {path: /srv/site}}\nissuers:\n  owner: {id: %s, connectors: ", mariaID, agentID, ownerID)
	if s.grants == nil {
		b.WriteString("any")
	} else {
		b.WriteString(list(s.grants))
	}
	if s.holders != nil {
		b.WriteString(", holders: " + list(s.holders))
	}
	b.WriteString("}\nallow:\n")
	for _, r := range s.rules {
		fmt.Fprintf(&b, "  - name: %s\n    to: %s\n    connector: %s\n    version: [\"%s\"]\n    limits: {stdout: %dKiB}\n",
			r.name, list(r.to), r.connector, strings.Join(r.versions, `", "`), r.stdout)
		if r.connection != "" {
			fmt.Fprintf(&b, "    connection: %s\n", r.connection)
		}
		if r.workspace != "" {
			fmt.Fprintf(&b, "    workspace: %s\n", r.workspace)
		}
		b.WriteString("    commands:\n")
		for _, c := range r.commands {
			if r.values == nil {
				fmt.Fprintf(&b, "      %s: {}\n", c)
			} else {
				fmt.Fprintf(&b, "      %s: {value: %s}\n", c, list(r.values))
			}
		}
	}
	p, err := Parse("policy.yaml", []byte(b.String()))
	if err != nil {
		t.Fatalf("%v\n%s", err, &b)
	}
	return p
}

// installed has a contract at each route: what it means is a fixed argument.
func (s side) installed() fakeContracts {
	out := fakeContracts{}
	for at, meaning := range s.routes {
		c := argv.Contract{Command: "alpha"}
		for _, command := range []string{"get", "put"} {
			d := argv.Declaration{Arguments: []string{command, meaning}, Parameters: map[string]argv.ParameterDeclaration{
				"value": {Flag: "--value", Pattern: "[a-d]"},
			}}
			c.Commands = append(c.Commands, must(d.Command(must(name.ParseCommand(command)))))
		}
		out[at] = c
	}
	return out
}

func (q wish) request() Request {
	ids := map[string]string{"owner": ownerID, "desk": deskID, "maria": mariaID, "agent": agentID, "stranger": strangerID}
	r := Request{
		Issuer: must(parsePeer(ids[q.issuer])), Peer: must(parsePeer(ids[q.peer])), Now: someDay, Stdin: q.stdin,
		Connector: must(name.ParseConnectorKey(q.connector)), Version: must(name.ParseVersion(q.version)),
		Command: must(name.ParseCommand(q.command)), Arguments: []string{"--value=" + q.value},
	}
	if q.pins != nil {
		r.Pins = map[name.Parameter][]string{must(name.ParseParameter("value")): q.pins}
	}
	return r
}

// oneOf draws the first one most of the time.
func oneOf[T any](t *rapid.T, label string, of ...T) T {
	if rapid.IntRange(0, 3).Draw(t, label+"?") > 0 {
		return of[0]
	}
	return rapid.SampledFrom(of).Draw(t, label)
}

func drawSide(t *rapid.T) side {
	some := func(label string, of ...string) []string {
		return rapid.SliceOfNDistinct(rapid.SampledFrom(of), 1, len(of), rapid.ID[string]).Draw(t, label)
	}
	s := side{
		grants: oneOf(t, "grants", nil, []string{"alpha"}, []string{"beta"}), holders: oneOf(t, "holders", nil, []string{"maria"}, []string{"agent"}),
		routes: map[string]string{},
	}
	for i := range rapid.IntRange(1, 4).Draw(t, "rules") {
		r := sideRule{
			name: "r" + string(rune('9'-i)), connector: oneOf(t, "connector", "alpha", "beta"), connection: oneOf(t, "connection", "", "main", "other"),
			workspace: oneOf(t, "workspace", "", "site"), to: some("to", "maria", "agent"), versions: some("versions", "1", "2"),
			commands: some("commands", "get", "put"), stdout: oneOf(t, "stdout", int64(100), 50, 7),
		}
		if !rapid.Bool().Draw(t, "wide") {
			r.values = some("values", "a", "b", "c")
		}
		s.rules = append(s.rules, r)
	}
	for _, at := range []string{"alpha@1", "alpha@2", "alpha@1#main", "alpha@2#main", "alpha@1#other"} {
		if m := oneOf(t, at, "same", "another", ""); m != "" {
			s.routes[at] = m
		}
	}
	return s
}

// drawWish draws a request near one of the rules, so that some pass.
func drawWish(t *rapid.T, s side) wish {
	near := rapid.SampledFrom(s.rules).Draw(t, "near")
	peers := near.to
	if s.holders != nil && rapid.Bool().Draw(t, "named") {
		peers = s.holders
	}
	values := near.values
	if values == nil {
		values = []string{"a", "b", "c"}
	}
	pick := func(label string, of []string, strange ...string) string {
		return oneOf(t, label, append([]string{rapid.SampledFrom(of).Draw(t, label+" of")}, strange...)...)
	}
	return wish{
		issuer: oneOf(t, "issuer", "owner", "owner", "desk"), peer: pick("peer", peers, "maria", "agent", "stranger"),
		connector: pick("asked", []string{"alpha", near.connector}, "beta"), version: pick("version", near.versions, "1", "2", "3"),
		command: pick("command", near.commands, "get", "put", "take"), value: pick("value", values, "a", "b", "x"),
		pins: oneOf(t, "pins", nil, []string{"a", "b"}, []string{}, []string{"x"}), stdin: oneOf(t, "stdin", false, true),
	}
}

func TestDecideAgainstSecondReference(t *testing.T) {
	count := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		then, now := drawSide(t), drawSide(t)
		if rapid.Bool().Draw(t, "as before") { // but for its limits and its routes
			routes := now.routes
			now = then
			now.routes = routes
			now.rules = slices.Clone(now.rules)
			now.rules[0].stdout = oneOf(t, "stdout now", int64(20), 200)
		}
		before, p, source := then.policy(t), now.policy(t), now.installed()
		for range 10 {
			q := drawWish(t, now)
			r := q.request()
			passing, furthest := decideReference(now, q)
			d := p.Decide(r, source)
			switch {
			case len(passing) == 0:
				count[furthest.String()]++
				if d.Allowed || d.Reason != furthest {
					t.Fatalf("%+v under %+v: allowed %v, %s; reference denies, %s", q, now, d.Allowed, d.Reason, furthest)
				}
			case asPass(d) != passing[0] || !d.Allowed:
				t.Fatalf("%+v under %+v: %v, %+v (%s); reference %+v", q, now, d.Allowed, asPass(d), d.Reason, passing[0])
			}

			frozen := before.Freeze(r.Issuer, r.Peer, r.Now, []Target{targetOf(r)}, then.installed())
			passed, _ := decideReference(then, q)
			want, allowed := withinReference(passed, passing)
			within := p.DecideWithin(frozen, r, source)
			if within.Allowed != allowed || allowed && asPass(within) != want {
				t.Fatalf("%+v frozen under %+v, now %+v: %v, %+v (%s); reference %v, %+v", q, then, now, within.Allowed, asPass(within), within.Reason, allowed, want)
			}
			count[fmt.Sprint("within ", allowed, len(passed) > 0, len(passing) > 0)]++
			if len(passed) > 0 && len(passing) > 0 && !allowed && within.Reason != ReasonFrozen {
				t.Fatalf("%+v: both allow, but not the same: %s", q, within.Reason)
			}
		}
	})
	t.Log(count)
	if testing.Short() {
		return
	}
	for _, r := range []string{
		ReasonIssuer.String(), ReasonHolder.String(), ReasonRule.String(), ReasonConnector.String(), ReasonVersion.String(), ReasonCommand.String(),
		ReasonRoute.String(), ReasonArgument.String(), ReasonStdin.String(), "within true true true", "within false true true", "within false false true", "within false true false",
	} {
		if count[r] == 0 {
			t.Errorf("no request was like %q: the generator is too narrow", r)
		}
	}
}

// asPass is what a decision says.
func asPass(d Decision) pass {
	p := pass{rule: d.Rule.Name, connection: d.Connection.String(), workspace: d.Workspace.String(), stdout: d.Limits.Stdout >> 10}
	if len(d.Call.Arguments) > 1 {
		p.contract = d.Call.Arguments[1]
	}
	return p
}
