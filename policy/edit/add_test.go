package edit

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lendcli/lend/policy"
	"github.com/lendcli/lend/policy/layout"
	"github.com/lendcli/lend/policy/preset"
	"github.com/lendcli/lend/protocol/argv"
	"github.com/lendcli/lend/protocol/name"
)

const (
	addOwner  = "12D3KooWEwHSuGRGT6ZpLtynu53u829CRZYrSxbUmhiJJs4mwyt4"
	addLaptop = "12D3KooWH2Zoo9X8rLtZaVANHvjjDFSR64ye2cQWNeYtvBZiaB2j"
	addAgent  = "12D3KooWJQ6BCcT8EaUwUoGUWcdRnYQpDRcD1YeB7chTMjQqrD71"
	addHead   = "# mine\npolicy: 1\nissuers:\n  owner: {id: " + addOwner + ", connectors: any} # me\n"
)

// bare has every Connector, and none declares commands.
type bare struct{}

func (bare) Contract(key name.ConnectorKey, _ name.Version, _ name.ConnectionID) (argv.Contract, string, error) {
	cli, ok := map[string]string{"github": "gh", "lark": "lark-cli"}[key.String()]
	if !ok {
		cli = key.String()
	}
	return argv.Contract{Command: cli}, "sha256:x", nil
}

func part(t require.TestingT, which string, set map[string][]string, peers ...preset.Peer) Part {
	return partUnder(t, name.Label{}, which, set, peers...)
}

func partUnder(t require.TestingT, issuer name.Label, which string, set map[string][]string, peers ...preset.Peer) Part {
	p, err := preset.Find(which)
	require.NoError(t, err)
	f, err := p.Render(preset.Values{To: peers, Set: set, Issuer: issuer})
	require.NoError(t, err)
	out := Part{Connector: p.Connector, Version: p.Versions[0], Rule: f.Rule, Declarations: f.Commands, Rules: f.Allow, Tests: f.Tests}
	for _, q := range peers {
		out.Peers = append(out.Peers, Newcomer{q.Name, q.ID})
	}
	for _, n := range f.Names {
		out.Commands = append(out.Commands, must(name.ParseCommand(n)))
	}
	return out
}

func newPeer(label, id string) preset.Peer {
	p := preset.Peer{Name: must(name.ParseLabel(label))}
	if id != "" {
		p.ID = must(name.ParsePeerID(id))
	}
	return p
}

// kept requires that every line of a text is in another, in order.
func kept(t *testing.T, before, after string) {
	t.Helper()
	rest := "\n" + after
	for line := range strings.Lines(before) {
		_, next, ok := strings.Cut(rest, "\n"+strings.TrimRight(line, "\n")+"\n")
		require.True(t, ok, "%q is gone", line)
		rest = "\n" + next
	}
}

func served(t *testing.T, r Result) {
	t.Helper()
	p, err := policy.Parse("policy.yaml", r.Text)
	require.NoError(t, err)
	for _, f := range p.Lint(bare{}) {
		require.NotEqual(t, policy.LevelError, f.Level, f.Message)
	}
	for _, test := range p.RunTests(bare{}) {
		require.True(t, test.Passed, test.Message)
	}
}

var site = map[string][]string{"repo": {"acme/site"}}

func TestAddToFiles(t *testing.T) {
	own := "peers:\n  agent: " + addAgent + "   # in the cellar\ncommands:\n    tool:   # mine\n        x: {effect: read, arguments: [x]}\nallow:\n- name: own\n  to: [agent]\n  connector: tool\n  version: \"1\"\n  commands: {x: {}}\n# the end\n"
	for title, text := range map[string]string{
		"first":       addHead,
		"no newline":  strings.TrimSuffix(addHead, "\n"),
		"empty parts": addHead + "commands: {}\nallow: []\ntests: []\n",
		"comments":    addHead + "\n# peers:\n#   laptop: 12D3KooW…\n\n# allow:\n#   - name: x\n",
		"own rules":   addHead + own,
		"own tests":   addHead + own + "tests:\n  - name: a\n    peer: agent\n    run: [tool, x]\n    want: allow\n",
		"dos":         strings.ReplaceAll(addHead, "\n", "\r\n"),
	} {
		t.Run(title, func(t *testing.T) {
			r, err := Add("policy.yaml", []byte(text), part(t, "gh", site, newPeer("laptop", addLaptop)), bare{})
			require.NoError(t, err)
			served(t, r)
			require.NotEmpty(t, r.Changes)
			require.Empty(t, r.Warnings)
			if title == "dos" {
				require.Equal(t, strings.Count(string(r.Text), "\n"), strings.Count(string(r.Text), "\r\n"))
				return
			}
			if title != "empty parts" {
				kept(t, text, string(r.Text))
			}
			require.Contains(t, r.Policy.Peers(), must(name.ParseLabel("laptop")))
			_, err = Add("policy.yaml", r.Text, part(t, "gh", site, newPeer("laptop", "")), bare{})
			require.ErrorContains(t, err, "already (policy.yaml:")
		})
	}
}

func TestAddTwice(t *testing.T) {
	r, err := Add("policy.yaml", []byte(addHead), part(t, "gh", site, newPeer("laptop", addLaptop)), bare{})
	require.NoError(t, err)
	once := strings.Count(string(r.Text), "arguments: [issue, list]")
	r, err = Add("policy.yaml", r.Text, part(t, "gh", site, newPeer("agent", addAgent)), bare{})
	require.NoError(t, err)
	served(t, r)
	require.Equal(t, once, strings.Count(string(r.Text), "arguments: [issue, list]"), "what is declared is declared once")
	r, err = Add("policy.yaml", r.Text, part(t, "stripe", nil, newPeer("agent", "")), bare{})
	require.NoError(t, err)
	served(t, r)
	var refused *RefusedError
	_, err = Add("policy.yaml", r.Text, part(t, "gh", map[string][]string{"repo": {"acme/docs"}}, newPeer("agent", ""), newPeer("laptop", "")), bare{})
	require.ErrorAs(t, err, &refused, "another repository in what is declared")
	require.ErrorContains(t, err, "of github already, and otherwise")

	r, err = Add("policy.yaml", []byte(addHead), part(t, "lark", map[string][]string{"chat": {"oc_0123456789abcdef"}}, newPeer("laptop", addLaptop)), bare{})
	require.NoError(t, err)
	r, err = Add("policy.yaml", r.Text, part(t, "lark", map[string][]string{"chat": {"oc_0123456789abcdef"}, "tasks": {"mine"}}, newPeer("agent", addAgent)), bare{})
	require.NoError(t, err)
	served(t, r)
	require.Equal(t, 1, strings.Count(string(r.Text), "+get-my-tasks, --as, user]\n"))
}

// A part that was added, denied and is added again: of its tests the file has those
// that want it denied, some without their code.
func TestAddAgain(t *testing.T) {
	gh := part(t, "gh", site, newPeer("laptop", addLaptop))
	once, err := Add("policy.yaml", []byte(addHead), gh, bare{})
	require.NoError(t, err)
	for title, change := range map[string]func(string) string{
		"as it is":     func(s string) string { return s },
		"written anew": func(s string) string { return string(must(layout.Format("policy.yaml", []byte(s)))) },
	} {
		t.Run(title, func(t *testing.T) {
			denied, err := Deny("policy.yaml", once.Text, Removal{Peer: must(name.ParseLabel("laptop")), Connector: gh.Connector}, bare{})
			require.NoError(t, err)
			r, err := Add("policy.yaml", []byte(change(string(denied.Text))), gh, bare{})
			require.NoError(t, err)
			served(t, r)
			require.Contains(t, fmt.Sprint(r.Notes), "get their code back")
			tests := func(p *policy.Policy) (all []string) {
				for _, c := range p.Content().Tests {
					all = append(all, fmt.Sprint(c.Name, c.Arguments, c.Allow, c.Code))
				}
				return all
			}
			require.ElementsMatch(t, tests(once.Policy), tests(r.Policy), "none twice, and none weaker")

			// A test of that name that wants something else stays, beside the part's own.
			mine := strings.Replace(string(denied.Text), "run: [github, api, user]", "run: [github, api, repos]", 1)
			require.NotEqual(t, string(denied.Text), mine)
			r, err = Add("policy.yaml", []byte(change(mine)), gh, bare{})
			require.NoError(t, err)
			served(t, r)
			require.Contains(t, string(r.Text), "laptop gh: no raw API 2")
			require.Contains(t, string(r.Text), "[github, api, repos]")
			require.Len(t, r.Policy.Content().Tests, len(once.Policy.Content().Tests)+1)
		})
	}
}

// The same part about another Connector is another rule, with tests of its own.
func TestAddForAnotherConnector(t *testing.T) {
	gh := part(t, "gh", site, newPeer("laptop", addLaptop))
	r, err := Add("policy.yaml", []byte(addHead), gh, bare{})
	require.NoError(t, err)
	p, err := preset.Find("gh")
	require.NoError(t, err)
	for _, key := range []string{"gh8", "gh9"} {
		f, err := p.Render(preset.Values{To: []preset.Peer{newPeer("laptop", "")}, Set: site, Connector: must(name.ParseConnectorKey(key))})
		require.NoError(t, err)
		again := gh
		again.Connector, again.Declarations, again.Rules, again.Tests = f.Connector, f.Commands, f.Allow, f.Tests
		r, err = Add("policy.yaml", r.Text, again, bare{})
		require.NoError(t, err)
		served(t, r)
		_, err = Add("policy.yaml", r.Text, again, bare{})
		var refused *RefusedError
		require.ErrorAs(t, err, &refused)
		require.ErrorContains(t, err, "already (policy.yaml:")
	}
	var rules []string
	for _, rule := range r.Policy.Content().Rules {
		rules = append(rules, rule.Name+": "+rule.Connector.String())
	}
	require.Equal(t, []string{"laptop: gh, read-only: github", "laptop: gh, read-only 2: gh8", "laptop: gh, read-only 3: gh9"}, rules)
}

func TestAddRefuses(t *testing.T) {
	gh := part(t, "gh", site, newPeer("laptop", addLaptop))
	for title, c := range map[string]struct {
		text string
		part Part
		want string
	}{
		"no such peer":    {addHead, part(t, "gh", site, newPeer("laptop", "")), "no peer of the file is named"},
		"another peer":    {addHead + "peers: {laptop: " + addAgent + "}\n", gh, "is another peer"},
		"flow rules":      {addHead + "peers: {agent: " + addAgent + "}\ncommands: {x: {y: {effect: read, arguments: [y]}}}\n", gh, "in braces"},
		"issuer may not":  {strings.Replace(addHead, "any", "[tool]", 1), gh, "could not use it"},
		"holders":         {strings.Replace(addHead, "any}", "any, holders: [agent]}", 1) + "peers: {agent: " + addAgent + "}\n", gh, "may not name laptop"},
		"manifest has it": {addHead, gh, "declares its commands"},
		"not installed":   {addHead, gh, "is to be installed first"},
		"two issuers":     {addHead + "  desk: {id: " + addAgent + ", connectors: any}\n", gh, "under whose lease"},
	} {
		t.Run(title, func(t *testing.T) {
			var from policy.Contracts = bare{}
			switch title {
			case "manifest has it":
				from = full{}
			case "not installed":
				from = source{}
			}
			r, err := Add("policy.yaml", []byte(c.text), c.part, from)
			var refused *RefusedError
			require.ErrorAs(t, err, &refused)
			require.ErrorContains(t, err, c.want)
			require.Zero(t, r)
		})
	}
	_, err := Add("policy.yaml", []byte("policy: 2\n"), gh, bare{})
	var problems policy.Problems
	require.ErrorAs(t, err, &problems)
}

// full has a Connector whose manifest declares a command.
type full struct{}

func (full) Contract(key name.ConnectorKey, _ name.Version, _ name.ConnectionID) (argv.Contract, string, error) {
	c, err := argv.Declaration{Effect: argv.EffectRead, Arguments: []string{"x"}}.Command(must(name.ParseCommand("x")))
	return argv.Contract{Command: key.String(), Commands: []argv.Command{c}}, "sha256:x", err
}

// both has alpha, and every other Connector without commands.
type both struct{}

func (both) Contract(key name.ConnectorKey, v name.Version, c name.ConnectionID) (argv.Contract, string, error) {
	if key.String() == "alpha" {
		return source{}.Contract(key, v, c)
	}
	return bare{}.Contract(key, v, c)
}

// Whatever the file is like, the part is in it afterwards, for that peer alone, and
// every line that was there still is.
func TestAddDoesNothingElse(t *testing.T) {
	made := 0
	rapid.Check(t, func(t *rapid.T) {
		text := drawFile(t)
		before, err := policy.Parse("p", []byte(text))
		if err != nil {
			t.Skip("not a policy")
		}
		peer := rapid.SampledFrom([]string{"maria", "agent", "third"}).Draw(t, "peer")
		r, err := Add("p", []byte(text), partUnder(t, must(name.ParseLabel("owner")), "lark", map[string][]string{"tasks": {"mine"}}, newPeer(peer, "")), both{})
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		made++
		rest := "\n" + string(r.Text)
		for line := range strings.Lines(text) {
			_, next, ok := strings.Cut(rest, "\n"+strings.TrimRight(line, "\n")+"\n")
			if !ok {
				t.Fatalf("%q is gone\n%s", line, r.Text)
			}
			rest = "\n" + next
		}
		ask := func(p *policy.Policy, who, issuer, key, version, command string, args ...string) bool {
			return p.Decide(policy.Request{
				Issuer: must(name.ParsePeerID(ids[issuer])), Peer: must(name.ParsePeerID(ids[who])), Connector: must(name.ParseConnectorKey(key)),
				Version: must(name.ParseVersion(version)), Command: must(name.ParseCommand(command)), Arguments: args, Now: time.Now(),
			}, both{}).Allowed
		}
		for _, issuer := range []string{"owner", "desk"} {
			for _, who := range []string{"maria", "agent", "third"} {
				mine := who == peer && issuer == "owner"
				if ask(r.Policy, who, issuer, "lark", "1.0.96", "task.mine") != mine || ask(r.Policy, who, issuer, "lark", "1.0.96", "task.mine", "--as", "bot") {
					t.Fatalf("%s under %s\n%s", who, issuer, r.Text)
				}
				for _, c := range []string{"get", "list", "put"} {
					if ask(before, who, issuer, "alpha", "1", c, "--repo", "a") != ask(r.Policy, who, issuer, "alpha", "1", c, "--repo", "a") {
						t.Fatalf("%s %s under %s\n%s", who, c, issuer, r.Text)
					}
				}
			}
		}
	})
	require.Greater(t, made, 30)
}
