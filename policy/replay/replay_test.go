package replay

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/policy"
	"github.com/lendcli/lend/policy/compare"
	"github.com/lendcli/lend/protocol/argv"
	"github.com/lendcli/lend/protocol/name"
)

const (
	ownerID    = "12D3KooWEwHSuGRGT6ZpLtynu53u829CRZYrSxbUmhiJJs4mwyt4"
	mariaID    = "12D3KooWH2Zoo9X8rLtZaVANHvjjDFSR64ye2cQWNeYtvBZiaB2j"
	agentID    = "12D3KooWJQ6BCcT8EaUwUoGUWcdRnYQpDRcD1YeB7chTMjQqrD71"
	strangerID = "12D3KooWKA9MX4vMqZocuA2swGUhZANTZJroEwgNHZEFrfvPhqx6"
	head       = "policy: 1\nissuers:\n  owner: {id: " + ownerID + ", connectors: any}\npeers: {maria: " + mariaID + ", agent: " + agentID + `}
commands:
  alpha:
    get: {arguments: [get], parameters: {repo: {flag: --repo, enum: [a, b], required: true}}}
    put: {arguments: [put], parameters: {repo: {flag: --repo, enum: [a, b]}}}
    run: {arguments: [run]}
allow:
`
)

var someDay = time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)

type source struct{}

func (source) Contract(key name.ConnectorKey, _ name.Version, _ name.ConnectionID) (argv.Contract, string, error) {
	if key.String() != "alpha" {
		return argv.Contract{}, "", errors.New("not installed")
	}
	return argv.Contract{Command: "alpha"}, "sha256:a", nil
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func texts(outcomes []Outcome) (out []string) {
	for _, o := range outcomes {
		s := string(o.Effect) + " " + o.Text
		if o.Position.Line > 0 {
			s = fmt.Sprintf("%s:%d %s", o.Position.File, o.Position.Line, s)
		}
		out = append(out, s)
	}
	return out
}

// The tests of both files are decided under both.
func TestTests(t *testing.T) {
	before := must(policy.Parse("old.yaml", []byte(head+`  - {name: a, to: [maria], connector: alpha, version: "1", commands: {get: {repo: a}, put: {}}}
tests:
  - {name: list, peer: maria, run: [alpha, get, --repo, a], want: allow}
  - {name: same, peer: maria, run: [alpha, put], want: allow}
  - {name: other, peer: agent, run: [alpha, get, --repo, a], want: deny}
`)))
	after := must(policy.Parse("new.yaml", []byte(head+`  - {name: b, to: [agent], connector: alpha, version: "1", commands: {get: {repo: a}}}
  - {name: c, to: [maria], connector: alpha, version: "1", commands: {put: {}}}
tests:
  - {name: same, peer: maria, run: [alpha, put], want: allow}
  - {name: third, peer: agent, run: [alpha, put], want: deny}
`)))
	r := Policies(before, after, source{}, Corpus{}, nil)
	require.Equal(t, []string{
		`new.yaml:15 changed test "third": refused with POLICY_DENIED, now with COMMAND_UNKNOWN`,
		`old.yaml:13 narrower test "list": ends: COMMAND_UNKNOWN`,
		`old.yaml:15 wider test "other": newly allowed, by rule "b"`,
	}, texts(r.Tests))
	require.True(t, Policies(before, before, source{}, Corpus{}, nil).Same())
	require.False(t, r.Same())
}

// What was asked is decided command by command, and what runs is told to end.
func TestCorpus(t *testing.T) {
	before := must(policy.Parse("old.yaml", []byte(head+"  - {name: a, to: [maria], connector: alpha, version: \"1\", commands: {get: {}, put: {}}}\n")))
	after := must(policy.Parse("new.yaml", []byte(head+"  - {name: a, to: [agent, maria], connector: alpha, version: \"1\", commands: {get: {repo: a}}}\n")))
	owner, maria, agent := must(name.ParsePeerID(ownerID)), must(name.ParsePeerID(mariaID)), must(name.ParsePeerID(agentID))
	target := func(key, command string) policy.Target {
		return policy.Target{Connector: must(name.ParseConnectorKey(key)), Version: must(name.ParseVersion("1")), Command: must(name.ParseCommand(command))}
	}
	get, put, run := target("alpha", "get"), target("alpha", "put"), target("alpha", "run")
	r := Policies(before, after, source{}, Corpus{
		Now: someDay,
		Asked: []Asked{
			{Issuer: owner, Peer: maria, Target: put, Allowed: true, Count: 3},
			{Issuer: owner, Peer: maria, Target: put, Allowed: true},
			{Issuer: owner, Peer: agent, Target: get, Count: 2},
			{Issuer: owner, Peer: agent, Target: put},
			{Issuer: owner, Peer: maria, Target: run},
			{Issuer: owner, Peer: must(name.ParsePeerID(strangerID)), Target: get},
		},
		Running: []Running{{"one", owner, maria, put}, {"two", owner, maria, get}, {"three", owner, agent, get}},
	}, compare.Policies(before, after, source{}))
	require.Equal(t, []string{
		"wider agent: alpha get (version 1), refused 2 times: newly allowed",
		"narrower maria: alpha put (version 1), started 4 times: ends: COMMAND_UNKNOWN",
		"changed agent: alpha put (version 1), refused once: refused with POLICY_DENIED, now with COMMAND_UNKNOWN",
		`narrower operation "one" of maria, alpha put: would end: COMMAND_UNKNOWN`,
		`narrower operation "two" of maria, alpha get: may end, if its arguments no longer pass`,
	}, append(texts(r.Asked), texts(r.Running)...))
}
