package policy_test

import (
	"errors"
	"fmt"

	"github.com/lendcli/lend/policy"
	"github.com/lendcli/lend/protocol/argv"
	"github.com/lendcli/lend/protocol/name"
)

// onlyTool knows one Connector, whose manifest declares no commands.
type onlyTool struct{}

func (onlyTool) Contract(key name.ConnectorKey, _ name.Version, _ name.ConnectionID) (argv.Contract, string, error) {
	if key.String() != "tool" {
		return argv.Contract{}, "", errors.New("no such route")
	}
	return argv.Contract{Command: "tool"}, "sha256:1f", nil
}

func Example() {
	p, err := policy.Parse("policy.yaml", []byte(`policy: 1
issuers:
  owner: {id: 12D3KooWEwHSuGRGT6ZpLtynu53u829CRZYrSxbUmhiJJs4mwyt4, connectors: any}
peers:
  maria-laptop: 12D3KooWH2Zoo9X8rLtZaVANHvjjDFSR64ye2cQWNeYtvBZiaB2j
commands:
  tool:
    count: {effect: read, arguments: [count], parameters: {of: {flag: --of, required: true, enum: [apples, pears]}}}
allow:
  - name: counting
    to: [maria-laptop]
    connector: tool
    version: "1"
    commands: {count: {of: apples}}
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, sentence := range p.Access(onlyTool{}) {
		fmt.Println(sentence)
	}
	request := policy.Request{Connector: key("tool"), Version: version("1"), Command: command("count")}
	request.Issuer, _ = name.ParsePeerID("12D3KooWEwHSuGRGT6ZpLtynu53u829CRZYrSxbUmhiJJs4mwyt4")
	request.Peer, _ = name.ParsePeerID("12D3KooWH2Zoo9X8rLtZaVANHvjjDFSR64ye2cQWNeYtvBZiaB2j")
	for _, of := range []string{"apples", "pears"} {
		request.Arguments = []string{"--of", of}
		fmt.Print(p.Explain(nil, request, onlyTool{}))
	}
	// Output:
	// maria-laptop may run tool count (version 1): of "apples"; at most 64 MiB of output; at most 2m.
	// yes  issuer: owner
	// yes  holder: maria-laptop
	// yes  rule "counting" (policy.yaml:10:5) passes
	// allowed by rule "counting" (policy.yaml:10:5)
	// runs: count --of=apples
	// yes  issuer: owner
	// yes  holder: maria-laptop
	// no   rule "counting" (policy.yaml:10:5) refuses the arguments: refuse argument 2, parameter of "--of": not-allowed: want "apples"
	// denied: ARGUMENT_REJECTED (argument-refused); rule "counting" (policy.yaml:10:5) came closest
}

func key(s string) name.ConnectorKey { k, _ := name.ParseConnectorKey(s); return k }

func version(s string) name.Version { v, _ := name.ParseVersion(s); return v }

func command(s string) name.Command { c, _ := name.ParseCommand(s); return c }

func ExampleParse() {
	_, err := policy.Parse("policy.yaml", []byte("policy: 1\nalow: []\nlimits: {stdout: 64MB}\n"))
	fmt.Println(err)
	// Output:
	// policy.yaml:2:1: unknown key "alow" in the file (did you mean "allow"?)
	//     2 | alow: []
	//       | ^
	// policy.yaml:3:18: stdout must be a size such as 64KiB or 16MiB, or the word unlimited, not "64MB"
	//     3 | limits: {stdout: 64MB}
	//       |                  ^
}
