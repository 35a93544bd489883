package edit

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/policy"
	"github.com/lendcli/lend/policy/compare"
	"github.com/lendcli/lend/protocol/name"
)

const small = `policy: 1
issuers:
  owner: {id: 12D3KooWEwHSuGRGT6ZpLtynu53u829CRZYrSxbUmhiJJs4mwyt4, connectors: any}
  desk: {id: 12D3KooWQ3gCYnQhxtFbqsbfbZmuZcQGzjpCCExt3ViccUb5X4dQ, connectors: any, holders: [maria]}
peers:
  maria: 12D3KooWH2Zoo9X8rLtZaVANHvjjDFSR64ye2cQWNeYtvBZiaB2j
  agent: 12D3KooWJQ6BCcT8EaUwUoGUWcdRnYQpDRcD1YeB7chTMjQqrD71
allow:
`

// The checks after an edit hold by themselves: an edit that went wrong is refused.
func TestEditsAreChecked(t *testing.T) {
	maria, agent := must(name.ParsePeerID(ids["maria"])), must(name.ParsePeerID(ids["agent"]))
	d := Removal{Peer: must(name.ParseLabel("maria")), Connector: must(name.ParseConnectorKey("alpha")), Commands: []name.Command{must(name.ParseCommand("get"))}}
	result := func(rules string) Result {
		before := must(policy.Parse("p", []byte(small+`  - {name: a, to: [maria, agent], connector: alpha, version: "1", commands: {get: {}, list: {}}}
  - {name: b, to: ["holders-of:desk"], issuers: [owner], connector: alpha, version: "1", commands: {put: {}}}
`)))
		after := must(policy.Parse("p", []byte(small+rules)))
		return Result{Policy: after, Changes: compare.Policies(before, after, source{})}
	}
	for _, c := range []struct{ name, rules, want string }{
		{"as it should be", `  - {name: a, to: [maria, agent], connector: alpha, version: "1", commands: {list: {}}}
  - {name: c, to: [agent], connector: alpha, version: "1", commands: {get: {}}}
`, ""},
		{"not taken away", `  - {name: a, to: [maria, agent], connector: alpha, version: "1", commands: {get: {}, list: {}}}
`, "would still let maria"},
		{"not under one issuer", `  - {name: a, to: [agent], connector: alpha, version: "1", commands: {get: {}, list: {}}}
  - {name: b, to: ["holders-of:desk"], issuers: [desk], connector: alpha, version: "1", commands: {get: {}}}
`, "would still let maria"},
		{"in another version", `  - {name: a, to: [agent], connector: alpha, version: "1", commands: {get: {}, list: {}}}
  - {name: c, to: [maria], connector: alpha, version: "2", commands: {get: {}}}
`, "would still let maria"},
		{"from another as well", `  - {name: a, to: [maria, agent], connector: alpha, version: "1", commands: {list: {}}}
`, "more than what was asked: agent"},
		{"another command as well", `  - {name: a, to: [agent], connector: alpha, version: "1", commands: {get: {}, list: {}}}
`, "more than what was asked: maria may no longer run alpha list"},
		{"wider elsewhere", `  - {name: a, to: [maria, agent], connector: alpha, version: "1", commands: {list: {}, put: {}}}
  - {name: c, to: [agent], connector: alpha, version: "1", commands: {get: {}}}
`, "more than what was asked"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := result(c.rules).denies(maria, d)
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.want)
		})
	}

	g := Grant{Peer: must(name.ParseLabel("agent")), Connector: d.Connector, Commands: d.Commands}
	with := func(rules string) *policy.Policy { return must(policy.Parse("p", []byte(small+rules))) }
	rule := `  - {name: a, to: [agent], connector: alpha, version: "1", commands: {get: {}}}` + "\n"
	require.NoError(t, gives(with(rule), agent, g))
	require.ErrorContains(t, gives(with("  - {name: a, to: [maria], connector: alpha, version: \"1\", commands: {get: {}}}\n"), agent, g), "no rule gives it get")
	require.ErrorContains(t, gives(with("  - {name: a, to: [agent], issuers: [desk], connector: alpha, version: \"1\", commands: {get: {}}}\n"), agent, g), "desk (p:4:3) may not name agent")
	require.ErrorContains(t, gives(must(policy.Parse("p", []byte("policy: 1\n"))), agent, g), "no issuer")
}

// A text that no longer parses is refused, and nothing comes out.
func TestBrokenEdit(t *testing.T) {
	w, err := begin("p", []byte(small+"  []\n"), source{})
	require.NoError(t, err)
	w.text = "policy: [1"
	r, err := w.finish()
	require.ErrorContains(t, err, "could not be read")
	require.Zero(t, r)
}

// A file that would grow beyond what a gateway reads is not written, and said to be so.
func TestDenyGrowsTooLarge(t *testing.T) {
	note := "    # " + strings.Repeat("x", 600<<10) + "\n"
	r, err := run("deny to=maria alpha get", []byte(small+"  - name: a\n"+note+"    to: [maria, agent]\n    connector: alpha\n    version: \"1\"\n    commands: {get: {}, list: {}}\n"))
	require.ErrorContains(t, err, "more than the 1 MiB that a file may have")
	require.Zero(t, r)
}

// A rule that came out otherwise than it was, and was not to be touched, is seen.
func TestCutIsSound(t *testing.T) {
	w, err := begin("p", []byte(small+"  - {name: a, to: [maria, agent], connector: alpha, version: \"1\", commands: {get: {}, list: {}}}\n  - {name: b, to: [agent], connector: alpha, version: \"1\", commands: {get: {}}}\n"), source{})
	require.NoError(t, err)
	s, err := w.sheet()
	require.NoError(t, err)
	d := Removal{Peer: must(name.ParseLabel("maria")), Connector: must(name.ParseConnectorKey("alpha")), Commands: []name.Command{must(name.ParseCommand("get"))}}
	c, err := cut(s.Source, w.before.Content(), must(name.ParsePeerID(ids["maria"])), d, 2)
	require.NoError(t, err)
	require.True(t, c.sound("p"))
	c.replace(c.Span(s.Root.Get("allow").Values[1].Get("version")), `"2"`)
	require.False(t, c.sound("p"))
}

func FuzzDeny(f *testing.F) {
	f.Add(small + `  - {name: a, to: [maria, agent], connector: alpha, version: "1", commands: {get: {}, list: {}}}` + "\n")
	f.Add(small + "  # x\n  - name: a # y\n    to:\n    - maria\n    - agent\n    connector: alpha\n    version: [\"1\"]\n    commands:\n      get: {}\n      list: {repo: a}\n")
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 4<<10 {
			return
		}
		maria := must(name.ParsePeerID(ids["maria"]))
		r, err := run("deny to=maria alpha get", []byte(text))
		if err != nil {
			require.Zero(t, r)
			return
		}
		for _, i := range r.Policy.Issuers() {
			require.False(t, reaches(r.Policy.Content(), &i, maria, must(name.ParseConnectorKey("alpha")), must(name.ParseCommand("get"))))
		}
	})
}
