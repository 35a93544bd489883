package policy

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/policy/review"
	"github.com/lendcli/lend/protocol/name"
)

// Who can is what the decision says: each holder that is named is allowed by that
// rule, and who is not named is not.
func TestWhoCanDecides(t *testing.T) {
	p := mustParse(t, head+`allow:
  - {name: all read, to: [maria-laptop, build-agent], connector: alpha, version: ["1", "3"], commands: {get: {repo: a}}}
  - {name: maria reads, to: [maria-laptop], connector: alpha, version: "2", commands: {get: {}, other: {}}}
tests:
  - {name: one, peer: maria-laptop, version: "1", run: [alpha, get, --repo, a], want: allow}
  - {name: two, peer: build-agent, version: "2", run: [alpha, get, --repo, b], want: deny}
`)
	source := worldContracts()
	var q review.Question
	q.Connector, q.Command, q.Now = must(name.ParseConnectorKey("alpha")), must(name.ParseCommand("get")), someDay
	for _, version := range []string{"1", "2", "3"} {
		for _, repo := range []string{"a", "b", "c"} {
			q.Version, q.Values = must(name.ParseVersion(version)), map[name.Parameter][]string{must(name.ParseParameter("repo")): {repo}}
			rules := map[name.PeerID]string{}
			for _, h := range p.WhoCan(q, source) {
				require.Empty(t, rules[h.PeerID])
				rules[h.PeerID] = h.Rule
			}
			for _, id := range p.Peers() {
				d := p.Decide(Request{
					Issuer: must(parsePeer(ownerID)), Peer: id, Connector: q.Connector, Version: q.Version, Command: q.Command,
					Arguments: []string{"--repo", repo}, Now: someDay,
				}, source)
				require.Equal(t, d.Allowed, rules[id] != "", "%s %s %s", id, version, repo)
				if d.Allowed {
					require.Equal(t, d.Rule.Name, rules[id])
				}
			}
		}
	}
	require.Equal(t, []string{"alpha/get", "alpha/other", "alpha/put"}, p.Targets(source))

	requests := p.TestRequests()
	require.Len(t, requests, len(p.Content().Tests))
	require.Equal(t, must(parsePeer(agentID)), requests[1].Peer)
	require.Equal(t, []string{"--repo", "b"}, requests[1].Arguments)
}
