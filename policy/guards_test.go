package policy

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/policy/file"
	"github.com/lendcli/lend/protocol/argv"
	"github.com/lendcli/lend/protocol/name"
)

// TestNothingToDecideBy: a missing policy or source is said, and not met as a panic.
func TestNothingToDecideBy(t *testing.T) {
	t.Parallel()
	var none *Policy
	d := none.Decide(Request{}, fakeContracts{})
	require.False(t, d.Allowed)
	require.ErrorIs(t, d.Err, errNoSource)
	d = mustParse(t, head).Decide(Request{}, nil)
	require.False(t, d.Allowed)
	require.ErrorIs(t, d.Err, errNoSource)
}

// TestSameIsTheSameInEverything: two decisions that differ in anything that is started
// are not the same.
func TestSameIsTheSameInEverything(t *testing.T) {
	t.Parallel()
	s := side{rules: []sideRule{{
		name: "r", connector: "alpha", to: []string{"maria"}, versions: []string{"1"}, commands: []string{"get"}, stdout: 10,
	}}, routes: map[string]string{"alpha@1": "same"}}
	p := mustParse(t, `policy: 1
peers: {maria: `+mariaID+`}
issuers: {owner: {id: `+ownerID+`, connectors: any}}
allow: [{name: r, to: [maria], connector: alpha, version: "1", commands: {get: {}}}]
`)
	q := wish{issuer: "owner", peer: "maria", connector: "alpha", version: "1", command: "get", value: "a"}
	d := p.Decide(q.request(), s.installed())
	require.True(t, d.Allowed, "%s: %v", d.Reason, d.Err)
	d.Call.Stdin = &argv.Stdin{MaxBytes: 1}
	require.True(t, same(d, d))
	s.routes["alpha@1"] = "another"
	replaced := p.Decide(q.request(), s.installed())
	require.True(t, replaced.Allowed)
	for title, change := range map[string]func(*Decision){
		"contract":    func(o *Decision) { o.Surface = replaced.Surface },
		"connection":  func(o *Decision) { o.Connection = must(name.ParseConnectionID("main")) },
		"workspace":   func(o *Decision) { o.Workspace = must(name.ParseLabel("site")) },
		"arguments":   func(o *Decision) { o.Call.Arguments = append([]string{}, "get", "same", "--value=b") },
		"environment": func(o *Decision) { o.Call.Environment = []argv.Variable{{Name: "A", Value: "b"}} },
		"paths":       func(o *Decision) { o.Call.Paths = []argv.Path{{Path: "x"}} },
		"no-input":    func(o *Decision) { o.Call.Stdin = nil },
		"text-input":  func(o *Decision) { o.Call.Stdin = &argv.Stdin{MaxBytes: 1, Text: true} },
		"values":      func(o *Decision) { o.Call.Values = nil },
	} {
		other := d
		change(&other)
		require.False(t, same(d, other), title)
		require.False(t, same(other, d), title)
	}
	more := d
	more.Call.Stdin = &argv.Stdin{MaxBytes: 2}
	require.True(t, same(d, more), "limits are the lower of both, and no difference")
}

// TestNoConnectorIsNoneOfARule: not even of a rule that names none, which no file has.
func TestNoConnectorIsNoneOfARule(t *testing.T) {
	t.Parallel()
	peer, version := must(name.ParsePeerID(mariaID)), must(name.ParseVersion("1"))
	r := Request{Peer: peer, Version: version, Command: must(name.ParseCommand("get"))}
	rule := &file.Rule{
		Peers: map[name.PeerID]bool{peer: true}, Versions: []name.Version{version}, Commands: []*file.Grant{{Name: r.Command}},
	}
	_, reason := covers(rule, r)
	require.Equal(t, ReasonConnector, reason)
	rule.Connector = must(name.ParseConnectorKey("alpha"))
	r.Connector = rule.Connector
	grant, reason := covers(rule, r)
	require.Equal(t, ReasonInternal, reason)
	require.Equal(t, rule.Commands[0], grant)
}
