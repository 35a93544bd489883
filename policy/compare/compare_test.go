package compare

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lendcli/lend/policy"
	"github.com/lendcli/lend/protocol/argv"
	"github.com/lendcli/lend/protocol/name"
)

const (
	ownerID    = "12D3KooWEwHSuGRGT6ZpLtynu53u829CRZYrSxbUmhiJJs4mwyt4"
	deskID     = "12D3KooWQ3gCYnQhxtFbqsbfbZmuZcQGzjpCCExt3ViccUb5X4dQ"
	mariaID    = "12D3KooWH2Zoo9X8rLtZaVANHvjjDFSR64ye2cQWNeYtvBZiaB2j"
	agentID    = "12D3KooWJQ6BCcT8EaUwUoGUWcdRnYQpDRcD1YeB7chTMjQqrD71"
	strangerID = "12D3KooWKA9MX4vMqZocuA2swGUhZANTZJroEwgNHZEFrfvPhqx6"
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func ptr[T any](v T) *T { return &v }

var someDay = time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)

// source has the Connector alpha, whose manifest declares commands, and beta, whose
// manifest declares none.
type source struct{}

func (source) Contract(key name.ConnectorKey, v name.Version, _ name.ConnectionID) (argv.Contract, string, error) {
	switch {
	case key.String() == "beta":
		return argv.Contract{Command: "beta", Environment: []string{"ONE", "OTHER"}}, "sha256:b", nil
	case key.String() != "alpha" || v.String() == "9":
		return argv.Contract{}, "", errors.New("not installed")
	}
	get := argv.Declaration{Arguments: []string{"get"}, Parameters: map[string]argv.ParameterDeclaration{
		"repo":  {Flag: "--repo", Required: true, Pattern: "[a-d]"},
		"n":     {Flag: "--n", Type: argv.TypeInteger, Minimum: ptr(1.0), Maximum: ptr(5000.0)},
		"ref":   {Position: 1, Pattern: "[a-z]*x?", MaxLength: ptr(8)},
		"tag":   {Flag: "--tag", Repeat: 3, MinItems: 1, Enum: []any{"p", "q", "r"}},
		"quiet": {Flag: "--quiet", Type: argv.TypeBoolean},
	}}
	put := argv.Declaration{Arguments: []string{"put"}, Parameters: map[string]argv.ParameterDeclaration{
		"repo": {Flag: "--repo", Required: true, Enum: []any{"a", "b", "c"}},
		"text": {Stdin: &argv.Stdin{Text: true}},
		"file": {Flag: "--file", Kind: argv.KindPath},
	}}
	run := argv.Declaration{Arguments: []string{"run"}, Rest: &argv.Rest{MaxItems: 3, Pattern: "[a-c]"}}
	c := argv.Contract{Command: "alpha"}
	for n, d := range map[string]argv.Declaration{"get": get, "put": put, "run": run} {
		c.Commands = append(c.Commands, must(d.Command(must(name.ParseCommand(n)))))
	}
	slices.SortFunc(c.Commands, func(a, b argv.Command) int { return strings.Compare(a.Name.String(), b.Name.String()) })
	return c, "sha256:a", nil
}

// drawPolicy writes a policy at random; its rules are about few things, so that two
// of them overlap.
func drawPolicy(t *rapid.T) string {
	pick := func(label string, from ...string) string { return rapid.SampledFrom(from).Draw(t, label) }
	some := func(label string, from ...string) string {
		return strings.Join(rapid.SliceOfNDistinct(rapid.SampledFrom(from), 1, len(from), rapid.ID[string]).Draw(t, label), ", ")
	}
	var b strings.Builder
	agent := pick("agent", "  agent: "+agentID+"\n", "  agent: "+agentID+"\n", "")
	fmt.Fprintf(&b, "policy: 1\npeers:\n  maria: %s\n%s", mariaID, agent)
	peers := []string{"maria", "team"}
	if agent != "" {
		peers = append(peers, "agent")
		fmt.Fprintf(&b, "groups: {team: [%s]}\n", some("team", "maria", "agent"))
	} else {
		b.WriteString("groups: {team: [maria]}\n")
	}
	b.WriteString("workspaces: {site: {path: /srv/site}}\nissuers:\n")
	fmt.Fprintf(&b, "  owner: {id: %s, connectors: %s%s}\n", ownerID, pick("connectors", "any", "[alpha]", "[alpha, beta]"), pick("holders", "", ", holders: any", ", holders: [maria]"))
	under := []string{"owner"}
	if rapid.Bool().Draw(t, "desk") {
		under = append(under, "desk")
		fmt.Fprintf(&b, "  desk: {id: %s, connectors: any%s}\n", deskID, pick("until", "", `, until: "2026-05-01"`, `, until: "2026-12-31"`, ", holders: any"))
	}
	if rapid.Bool().Draw(t, "limited") {
		fmt.Fprintf(&b, "limits: {arguments: %s}\n", pick("arguments", "3", "4", "200"))
	}
	switch rapid.IntRange(0, 2).Draw(t, "declared") {
	case 0:
		fmt.Fprintf(&b, "commands: {beta: {do: {arguments: [%s], parameters: {repo: {%s, enum: [%s]}, word: {position: 1, pattern: %s}}}}}\n",
			pick("fixed", "do", "do", "undo"), pick("flag", "flag: --repo", "flag: --repo", "flag: --repo, aliases: [-r]"), some("enum", "a", "b"), pick("word", `"[a-c]+"`, `"[a-b]"`))
	case 1:
		b.WriteString("commands: {beta: {do: {arguments: [do], rest: {max_items: 2, pattern: \"[a-c]\"}}}}\n")
	}
	for _, i := range under {
		peers = append(peers, "holders-of:"+i)
	}
	b.WriteString("allow:\n")
	for n := range rapid.IntRange(0, 4).Draw(t, "rules") {
		quoted := `"` + strings.ReplaceAll(some("to", peers...), ", ", `", "`) + `"`
		connector := pick("connector", "alpha", "alpha", "alpha", "beta")
		fmt.Fprintf(&b, "  - {name: r%d, to: [%s], connector: %s, version: [%s]", n, quoted, connector, some("version", `"1"`, `"2"`))
		if rapid.IntRange(0, 2).Draw(t, "workspace") == 0 {
			b.WriteString(", workspace: site")
		}
		if rapid.IntRange(0, 2).Draw(t, "under") == 0 {
			fmt.Fprintf(&b, ", issuers: [%s]", some("issuers", under...))
		}
		if rapid.IntRange(0, 3).Draw(t, "limits") == 0 {
			fmt.Fprintf(&b, ", limits: {arguments: %s}", pick("rule arguments", "2", "3"))
		}
		b.WriteString(", commands: {")
		if connector == "beta" {
			b.WriteString("do: {}")
		} else {
			fmt.Fprintf(&b, "get: {%s%s%s%s%s}", pick("repo", "", "repo: a, ", "repo: [a, b], ", "repo: [b, c], ", `repo: {pattern: "[ab]"}, `),
				pick("n", "", "n: {maximum: 10}, ", "n: {minimum: 5, maximum: 20}, ", "n: {maximum: 2000}, ", "n: {forbidden: true}, ", "n: {required: true}, ", "n: [5, 6], "),
				pick("ref", "", `ref: {pattern: "[a-c]*"}, `, `ref: {pattern: "[a-b]*"}, `, "ref: {max_length: 2}, ", "ref: {forbidden: true}, ", "ref: [ab, b], "),
				pick("tag", "", "tag: {forbidden: true}, ", "tag: [p, q], "), pick("quiet", "", "quiet: true, ", "quiet: {required: true}, "))
			if rapid.Bool().Draw(t, "put") {
				fmt.Fprintf(&b, ", put: {%s%s}", pick("put repo", "", "repo: a, ", "repo: [b, c], "), pick("text", "", "text: {forbidden: true}, ", "text: {required: true}, "))
			}
			if rapid.Bool().Draw(t, "run") {
				b.WriteString(", run: {}")
			}
		}
		b.WriteString("}}\n")
	}
	return b.String()
}

func drawRequest(t *rapid.T) policy.Request {
	pick := func(label string, from ...string) string { return rapid.SampledFrom(from).Draw(t, label) }
	ids := map[string]string{"owner": ownerID, "desk": deskID, "maria": mariaID, "agent": agentID, "stranger": strangerID}
	r := policy.Request{
		Issuer: must(name.ParsePeerID(ids[pick("issuer", "owner", "owner", "desk")])), Peer: must(name.ParsePeerID(ids[pick("peer", "maria", "maria", "agent", "stranger")])),
		Version: must(name.ParseVersion(pick("version", "1", "2"))), Now: someDay, Stdin: rapid.IntRange(0, 4).Draw(t, "stdin") == 0,
	}
	target := pick("target", "alpha get", "alpha get", "alpha get", "alpha put", "alpha run", "beta do")
	key, command, _ := strings.Cut(target, " ")
	r.Connector, r.Command = must(name.ParseConnectorKey(key)), must(name.ParseCommand(command))
	maybe := func(label string, of ...string) {
		if rapid.Bool().Draw(t, label+"?") {
			r.Arguments = append(r.Arguments, pick(label, of...))
		}
	}
	switch target {
	case "alpha run":
		for range rapid.IntRange(0, 3).Draw(t, "tail") {
			r.Arguments = append(r.Arguments, pick("item", "a", "c", "d"))
		}
		return r
	case "beta do":
		maybe("repo", "--repo=a", "--repo=b", "-r")
		maybe("word", "a", "ab", "abc")
		return r
	case "alpha put":
		maybe("file", "--file=x/y")
	default:
		maybe("n", "--n=1", "--n=5", "--n=7", "--n=15", "--n=1500")
		maybe("ref", "a", "ab", "abc", "zzx")
		maybe("tag", "--tag=p", "--tag=r")
		maybe("quiet", "--quiet", "--quiet=false")
	}
	r.Arguments = append(r.Arguments, "--repo="+pick("repo", "a", "b", "c", "d"))
	return r
}

// covers tells whether a change is about a request.
func covers(c Change, r policy.Request, before, after *policy.Policy) bool {
	issuer := ""
	for _, p := range []*policy.Policy{before, after} {
		if i, ok := p.Issuer(r.Issuer); ok {
			issuer = i.Name.String()
		}
	}
	return (len(c.Issuers) == 0 || slices.Contains(c.Issuers, issuer)) &&
		(c.PeerID.IsZero() || c.PeerID == r.Peer) &&
		(c.Connector.IsZero() && c.Peer == "" || c.Connector == r.Connector && c.Command == r.Command && slices.Contains(c.Versions, r.Version.String()))
}

// bySelf tells a change that stands for a request: one of its command, or one of the
// time or a limit, which are said once for all commands.
func bySelf(c Change) bool {
	return !c.Connector.IsZero() || strings.Contains(c.Text, "is trusted") || strings.Contains(c.Text, "limit arguments")
}

// What is newly allowed, or ends, for some request is in the report, for that peer
// and command.
func TestNothingIsLeftOut(t *testing.T) {
	opened, ended, said, quiet := 0, 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		texts := []string{drawPolicy(t), drawPolicy(t)}
		if rapid.Bool().Draw(t, "near") { // an edit of one line, as people make them
			lines, others := strings.Split(texts[0], "\n"), strings.Split(texts[1], "\n")
			if i := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "  - {name") }); i >= 0 && i < len(lines)-1 {
				edited := slices.Clone(lines)
				for _, l := range others {
					if strings.HasPrefix(l, "  - {name: r0") {
						edited[i] = l
					}
				}
				texts[1] = strings.Join(edited, "\n")
			}
		}
		var p [2]*policy.Policy
		for i := range p {
			var err error
			if p[i], err = policy.Parse("policy.yaml", []byte(texts[i])); err != nil {
				t.Skip("the line is of no use there")
			}
		}
		report := Policies(p[0], p[1], source{})
		quietly := len(report) == 0
		if quietly {
			quiet++
		} else {
			said++
		}
		for range 25 {
			r := drawRequest(t)
			was, is := p[0].Decide(r, source{}), p[1].Decide(r, source{})
			if was.Allowed == is.Allowed {
				continue
			}
			not := Narrower
			if was.Allowed {
				not = Wider
				ended++
			} else {
				opened++
			}
			if !slices.ContainsFunc(report, func(c Change) bool { return c.Effect != not && bySelf(c) && covers(c, r, p[0], p[1]) }) {
				t.Fatalf("%s %s %s %q: allowed was %v, is %v, and nothing says so\n%s\n---\n%s\n---\n%+v", r.Peer, r.Connector, r.Command, r.Arguments, was.Allowed, is.Allowed, texts[0], texts[1], report)
			}
		}
		same := Policies(p[0], p[0], source{})
		if len(same) != 0 {
			t.Fatalf("a file differs from itself: %+v\n%s", same, texts[0])
		}
	})
	require.Greater(t, min(opened, ended), 20, "the generator is too narrow")
	t.Logf("%d requests opened, %d ended; %d reports, %d of nothing", opened, ended, said, quiet)
}
