//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/localhost/manifest"
	"github.com/lendcli/lend/policy"
	"github.com/lendcli/lend/protocol"
	"github.com/lendcli/lend/protocol/argv"
	"github.com/lendcli/lend/protocol/name"
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// frames are an Accepted and n data frames of the largest size.
func frames(tb testing.TB, n int) []byte {
	tb.Helper()
	var b bytes.Buffer
	w := protocol.NewWriter(&b)
	require.NoError(tb, w.WriteFrame(&protocol.Accepted{Token: make([]byte, protocol.TokenSize), Limits: protocol.Limits{Detached: time.Minute}}))
	buf := make([]byte, protocol.DataHeaderMax+protocol.MaxData)
	for i := range n {
		require.NoError(tb, w.WriteData(buf, protocol.Stdout, uint64(i*protocol.MaxData), protocol.MaxData))
	}
	return b.Bytes()
}

func BenchmarkFrameEncode(b *testing.B) {
	w := protocol.NewWriter(io.Discard)
	buf := make([]byte, protocol.DataHeaderMax+protocol.MaxData)
	b.SetBytes(protocol.MaxData)
	for b.Loop() {
		if err := w.WriteData(buf, protocol.Stdout, 1<<20, protocol.MaxData); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkFrameDecode reads 64 frames, and a reader is made for them.
func BenchmarkFrameDecode(b *testing.B) {
	const n = 64
	stream := frames(b, n)
	b.SetBytes(n * protocol.MaxData)
	for b.Loop() {
		r := protocol.NewReader(bytes.NewReader(stream), protocol.Caller)
		for range n + 1 {
			if _, err := r.Read(); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// catalogue is one of 100 commands.
func catalogue() []protocol.CatalogEntry {
	out := make([]protocol.CatalogEntry, 100)
	for i := range out {
		out[i] = protocol.CatalogEntry{
			Connector: must(name.ParseConnectorKey("github")), Version: must(name.ParseVersion("1.0.0")),
			Command: must(name.ParseCommand(fmt.Sprintf("issue.list%d", i))), Summary: "List issues", Effect: "read",
			InputSchema: json.RawMessage(`{"type":"object","properties":{"repo":{"type":"string"}}}`),
		}
	}
	return out
}

func BenchmarkCatalog(b *testing.B) {
	entries := catalogue()
	for b.Loop() {
		var wire bytes.Buffer
		if err := protocol.WriteCatalog(&wire, entries); err != nil {
			b.Fatal(err)
		}
		if got, err := protocol.ReadCatalog(&wire); err != nil || len(got) != len(entries) {
			b.Fatal(len(got), err)
		}
	}
}

const costPolicy = `policy: 1
issuers:
  owner: {id: 12D3KooWEwHSuGRGT6ZpLtynu53u829CRZYrSxbUmhiJJs4mwyt4, connectors: any, max_life: 24h}
peers:
  desk: 12D3KooWQ3gCYnQhxtFbqsbfbZmuZcQGzjpCCExt3ViccUb5X4dQ
commands:
  github:
    issue.list:
      effect: read
      arguments: [issue, list]
      parameters:
        repo: {flag: --repo, pattern: "acme/[a-z-]{1,40}", required: true}
        limit: {flag: --limit, type: integer, minimum: 1, maximum: 100}
        state: {flag: --state, enum: [open, closed, all]}
allow:
  - {name: issues, to: [desk], connector: github, version: "1.0.0", commands: {issue.list: {}}}
`

type oneContract struct{}

func (oneContract) Contract(key name.ConnectorKey, _ name.Version, _ name.ConnectionID) (argv.Contract, string, error) {
	if key.String() != "github" {
		return argv.Contract{}, "", errors.New("no such route")
	}
	return argv.Contract{Command: "gh"}, "sha256:0000000000000000000000000000000000000000000000000000000000000000", nil
}

func BenchmarkDecide(b *testing.B) {
	p, err := policy.Parse("policy.yaml", []byte(costPolicy))
	require.NoError(b, err)
	r := policy.Request{
		Issuer:    must(name.ParsePeerID("12D3KooWEwHSuGRGT6ZpLtynu53u829CRZYrSxbUmhiJJs4mwyt4")),
		Peer:      must(name.ParsePeerID("12D3KooWQ3gCYnQhxtFbqsbfbZmuZcQGzjpCCExt3ViccUb5X4dQ")),
		Connector: must(name.ParseConnectorKey("github")), Version: must(name.ParseVersion("1.0.0")),
		Command:   must(name.ParseCommand("issue.list")),
		Arguments: []string{"--repo", "acme/site", "--limit", "5", "--state", "open"}, Now: time.Now(),
	}
	for b.Loop() {
		if d := p.Decide(r, oneContract{}); !d.Allowed {
			b.Fatal(d.Reason)
		}
	}
}

func BenchmarkContractHash(b *testing.B) {
	const text = `{"effect":"read","arguments":["issue","list"],"parameters":{"repo":{"flag":"--repo","pattern":"[a-z]{1,9}"}}}`
	var declared argv.Declaration
	require.NoError(b, json.Unmarshal([]byte(text), &declared))
	c := argv.Contract{Command: "gh"}
	for i := range 20 {
		one, err := declared.Command(must(name.ParseCommand(fmt.Sprintf("issue.list%d", i))))
		require.NoError(b, err)
		c.Commands = append(c.Commands, one)
	}
	for b.Loop() {
		if _, err := manifest.ManagedCLIContractHash(c); err != nil {
			b.Fatal(err)
		}
	}
}
