package edit

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/protocol/name"
)

func TestIntroduceNamesAPeerAndNothingElse(t *testing.T) {
	t.Parallel()
	laptop := Newcomer{must(name.ParseLabel("laptop")), must(name.ParsePeerID(addLaptop))}
	r, err := Introduce("policy.yaml", []byte(addHead), laptop, bare{})
	require.NoError(t, err)
	require.Equal(t, addHead+"peers:\n  laptop: "+addLaptop+"\n", string(r.Text))
	for _, c := range r.Changes {
		require.True(t, c.Connector.IsZero() && c.Command.IsZero(), c.Text)
	}
	require.Equal(t, map[name.Label]name.PeerID{laptop.Name: laptop.ID}, r.Policy.Peers())
	kept(t, addHead, string(r.Text))
	served(t, r)

	agent := Newcomer{must(name.ParseLabel("agent")), must(name.ParsePeerID(addAgent))}
	again, err := Introduce("policy.yaml", r.Text, agent, bare{})
	require.NoError(t, err)
	require.Equal(t, string(r.Text)+"  agent: "+addAgent+"\n", string(again.Text))

	var refused *RefusedError
	for title, n := range map[string]Newcomer{
		"the name is taken": {laptop.Name, agent.ID},
		"the ID is taken":   {agent.Name, laptop.ID},
		"no ID":             {Name: agent.Name},
	} {
		got, err := Introduce("policy.yaml", r.Text, n, bare{})
		require.ErrorAs(t, err, &refused, title)
		require.Empty(t, got.Text, title)
	}
	_, err = Introduce("policy.yaml", []byte("policy: 2\n"), agent, bare{})
	require.Error(t, err)
	require.NotErrorAs(t, err, &refused)
}

// TestIntroducedPeerOfAWideRule: a rule that is for all that an issuer names is shown.
func TestIntroducedPeerOfAWideRule(t *testing.T) {
	t.Parallel()
	text := addHead + `allow:
  - name: all
    to: ["holders-of:owner"]
    connector: github
    version: "1"
    commands: {issue.list: {}}
commands:
  github:
    issue.list: {arguments: [issue, list], effect: read}
peers:
  agent: ` + addAgent + "\n"
	r, err := Introduce("policy.yaml", []byte(text), Newcomer{must(name.ParseLabel("laptop")), must(name.ParsePeerID(addLaptop))}, bare{})
	require.NoError(t, err)
	require.NotEmpty(t, r.Changes)
	require.True(t, r.Changes.Widens())
}
