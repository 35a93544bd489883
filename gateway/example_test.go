package gateway_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/multiformats/go-multiaddr"

	"github.com/lendcli/lend/gateway"
	"github.com/lendcli/lend/gateway/client"
	"github.com/lendcli/lend/gateway/ledger"
	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/lease/revocation"
	"github.com/lendcli/lend/localhost/route"
	"github.com/lendcli/lend/policy"
	"github.com/lendcli/lend/protocol/argv"
	"github.com/lendcli/lend/protocol/name"
)

// What is between "doc:" and "end doc" is in docs/embedding.md.

// doc: host
// shouter is an implementation host of an embedding product: it has one Connector,
// whose one command says what it is told, louder. A real one starts a process.
type shouter struct{ route route.Descriptor }

func newShouter() *shouter {
	contract := argv.Contract{Command: "shout", Commands: []argv.Command{{
		Name: must(name.ParseCommand("say")), Effect: argv.EffectRead, Arguments: []string{"say"},
		Parameters: []argv.Parameter{{
			Name: must(name.ParseParameter("word")), Required: true, Position: 1,
			Schemas: []argv.Schema{{Type: argv.TypeString, Pattern: "[a-z]+"}},
		}},
	}}}
	hash := sha256.Sum256(must(argv.CanonicalJSON(contract.Semantics())))
	return &shouter{route.Descriptor{Contract: contract, Identity: route.Identity{
		Connection: must(name.ParseConnectionID("main")), Connector: must(name.ParseConnectorKey("shout")),
		Version: must(name.ParseVersion("1.0.0")), ReleaseDigest: strings.Repeat("0", 64),
		Generation: route.Generation{Epoch: "boot", Number: 1}, ContractHash: "sha256:" + hex.EncodeToString(hash[:]),
	}}}
}

// Resolve knows one route.
func (s *shouter) Resolve(q route.Query) (route.Descriptor, error) {
	if q.Connector != s.route.Identity.Connector || q.Version != s.route.Identity.Version {
		return route.Descriptor{}, route.ErrNotFound
	}
	return s.route, nil
}

// Start runs what was authorised, under the identity that was pinned.
func (s *shouter) Start(_ context.Context, r route.StartRequest) (route.Process, error) {
	if r.Identity != s.route.Identity {
		return nil, route.ErrIdentityMismatch
	}
	out := strings.ToUpper(strings.Join(r.Call.Arguments[1:], " ")) + "\n"
	return &shout{stdout: strings.NewReader(out)}, nil
}

// shout is a process that has ended when it begins.
type shout struct{ stdout io.Reader }

func (p *shout) Stdin() io.WriteCloser                    { return nil }
func (p *shout) Stdout() io.ReadCloser                    { return io.NopCloser(p.stdout) }
func (p *shout) Stderr() io.ReadCloser                    { return io.NopCloser(strings.NewReader("")) }
func (p *shout) Wait(context.Context) (route.Exit, error) { return route.Exit{}, nil }
func (p *shout) Terminate() error                         { return nil }
func (p *shout) Kill() error                              { return nil }
func (p *shout) Close() error                             { return nil }

// end doc

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func newKey() (ed25519.PrivateKey, name.PeerID) {
	public, key, err := ed25519.GenerateKey(rand.Reader)
	return must(key, err), must(name.PeerIDFromKey(public))
}

// A product shares commands of its own through the gateway: it brings a Runtime,
// a policy and a ledger, and everything else is the same as in lend serve.
func Example() {
	dir := must(os.MkdirTemp("", "lend"))
	defer os.RemoveAll(dir)
	gatewayKey, gatewayID := newKey()
	ownerKey, ownerID := newKey()
	agentKey, agentID := newKey()

	// doc: gateway
	// The gateway, on the machine of the owner.
	rules := must(policy.Parse("policy.yaml", []byte(fmt.Sprintf(`
policy: 1
issuers:
  owner: {id: %s, connectors: any}
peers:
  agent: %s
allow:
  - name: the agent may speak
    to: [agent]
    connector: shout
    version: "1.0.0"
    commands: {say: {}}
`, ownerID, agentID))))
	records := must(ledger.Open(ledger.Config{Dir: dir + "/ledger"}))
	defer records.Close()
	node := must(gateway.New(gateway.Config{
		Key:         gatewayKey,
		Listen:      []multiaddr.Multiaddr{must(multiaddr.NewMultiaddr("/ip4/127.0.0.1/udp/0/quic-v1"))},
		Policy:      rules,
		Runtime:     newShouter(),
		Ledger:      records,
		Revocations: must(revocation.New()),
	}))
	defer node.Close()
	// end doc

	// doc: issuer
	// A lease for the agent, from the owner.
	now := time.Now()
	sealed := must(lease.Seal(lease.Lease{
		ID: lease.NewID(), Issuer: ownerID, Holder: agentID, Gateway: gatewayID,
		Invocation: must(name.ParseInvocationID("task-1")), Authority: lease.AuthorityOwner,
		Grants: []lease.Grant{{
			Connector: must(name.ParseConnectorKey("shout")), Version: must(name.ParseVersion("1.0.0")),
			Commands: []name.Command{must(name.ParseCommand("say"))},
		}},
		IssuedAt: now, NotBefore: now, NotAfter: now.Add(time.Minute), MaxOperations: 10, MaxConcurrent: 1,
	}, must(crypto.UnmarshalEd25519PrivateKey(ownerKey))))
	// end doc

	// The agent, on another machine.
	agent := must(client.New(client.Config{
		Key: agentKey, Addresses: node.Addrs(),
		Leases: client.Static(lease.File{Chain: [][]byte{sealed}}),
	}))
	defer agent.Close()
	out, err := agent.Command(context.Background(), "shout", "say", "hello").Output()
	fmt.Printf("%s%v\n", out, err)
	_, err = agent.Command(context.Background(), "shout", "say", "--loud").Output()
	fmt.Println(client.ExitStatus(err))

	// Output:
	// HELLO
	// <nil>
	// 126
}
