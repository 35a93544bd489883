package main

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/lendcli/lend/gateway/ledger"
	"github.com/lendcli/lend/gateway/ownerfile"
	"github.com/lendcli/lend/gateway/revocations"
	"github.com/lendcli/lend/policy"
	"github.com/lendcli/lend/protocol/name"
)

func (a *app) initCommand() *cobra.Command {
	var source string
	c := &cobra.Command{
		Use:   "init",
		Short: "make an identity, the owner's key and a policy that shares nothing",
		Long: `Make the directories, the gateway's identity, a separate key with which you
sign leases, and a policy file that shares nothing. What exists already stays as
it is: init may be run again at any time.

Secrets of Connectors are sealed with a key that comes from one place: keyfile
(a file beside them, which is weak), age:FILE (age identities), passphrase or
keyring. See lend connector secret key --help.`,
		Example: `  lend init
  lend init --key-source keyring
  LEND_DIR=/srv/lend lend init --json`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return a.initialise(source) },
	}
	c.Flags().StringVar(&source, "key-source", "", "where the key of the secrets comes from (default: what is chosen already, else keyfile)")
	return c
}

type initialised struct {
	SchemaVersion int    `json:"schemaVersion"`
	PeerID        string `json:"peerId"`
	Owner         string `json:"owner"`
	Policy        string `json:"policy"`
	KeySource     string `json:"keySource"`
	Created       bool   `json:"created"`
}

func (a *app) initialise(keySource string) error {
	p, err := a.paths()
	if err != nil {
		return err
	}
	if err := p.makePrivate(); err != nil {
		return err
	}
	if err := makeRevocations(p); err != nil {
		return err
	}
	identity, madeIdentity, err := loadOrCreateKey(p.identityKey())
	if err != nil {
		return err
	}
	owner, _, err := loadOrCreateKey(p.ownerKey())
	if err != nil {
		return err
	}
	if err := createOnce(p.policy(), firstPolicy(owner)); err != nil {
		return err
	}
	if err := ownerfile.Replace(p.schema(), policy.Schema()); err != nil {
		return err
	}
	if err := makeLedger(p.ledger()); err != nil {
		return err
	}
	source, err := a.chooseKeySource(p, keySource)
	if err != nil {
		return err
	}
	r := initialised{jsonSchema, identity.String(), owner.String(), p.policy(), source.String(), madeIdentity}
	return a.show(r, func() error {
		if err := a.say("peer ID    %s\nowner key  %s\npolicy     %s", r.PeerID, r.Owner, r.Policy); err != nil {
			return err
		}
		a.note("lend: the policy shares nothing yet; next, to lend: lend connector add DIRECTORY")
		a.note("lend: to call what another machine lends: lend id, for its owner's policy")
		return nil
	})
}

// makeLedger begins the record of operations, since leases that are older than it
// are refused. A running gateway has it already.
func makeLedger(dir string) error {
	l, err := ledger.Open(ledger.Config{Dir: dir})
	if errors.Is(err, ledger.ErrLocked) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("begin the ledger: %w", err)
	}
	return l.Close()
}

// makeRevocations begins the file of revocations, but not in place of one that a
// machine had and has no more: that denies everything.
func makeRevocations(p paths) error {
	if _, err := os.Lstat(p.identityKey()); err == nil {
		return nil
	}
	if err := revocations.Create(p.revocations()); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("begin the revocations: %w", err)
	}
	return nil
}

// loadOrCreateKey returns the ID of the key in a file, which it makes if there is
// none.
func loadOrCreateKey(path string) (name.PeerID, bool, error) {
	key, err := ownerfile.LoadKey(path)
	made := errors.Is(err, os.ErrNotExist)
	if made {
		key, err = ownerfile.CreateKey(path)
	}
	if err != nil {
		return name.PeerID{}, false, err
	}
	id, err := peerID(key)
	return id, made, err
}

func peerID(key ed25519.PrivateKey) (name.PeerID, error) {
	public, ok := key.Public().(ed25519.PublicKey)
	if !ok {
		return name.PeerID{}, errors.New("not an Ed25519 key")
	}
	return name.PeerIDFromKey(public)
}

func createOnce(path string, data []byte) error {
	err := ownerfile.Create(path, data)
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	return err
}

func firstPolicy(owner name.PeerID) []byte {
	return fmt.Appendf(nil, `# yaml-language-server: $schema=policy.schema.json
#
# What this machine lends, to whom, and within which bounds. What is not allowed
# here is refused; this file allows nothing yet. See docs/policy.md, and after
# each change: lend policy check. A running gateway takes changes up by itself.
policy: 1

# Keys whose leases count here. "owner" is this machine's own (lend lease issue).
issuers:
  owner:
    id: %s
    connectors: any # the rules below bind nevertheless

# The peers that may connect: lend id, on their machine, prints the ID.
# peers:
#   laptop: 12D3KooW…

# The commands of a Connector whose own manifest declares none, as lend connector
# show KEY says: what the caller may write, and how the CLI gets it. For gh, stripe
# and lark-cli there is something to start from: lend policy preset list
# commands:
#   github:
#     issue.list:
#       arguments: [issue, list]
#       effect: read
#       parameters:
#         repo: {flag: --repo, enum: [acme/site, acme/docs], required: true}

# What each may run, perhaps narrowed.
# allow:
#   - name: laptop reads issues
#     to: [laptop]
#     connector: github
#     version: "2.23.0"    # lend connector list
#     commands:
#       issue.list:
#         repo: {enum: [acme/site]}
`, owner)
}

func (a *app) idCommand() *cobra.Command {
	var owner bool
	c := &cobra.Command{
		Use:   "id",
		Short: "print this machine's peer ID",
		Long: `Print the ID that others put into their policy as a peer. With --owner, print
the ID of the key with which this machine signs leases, for "issuers:".`,
		Example: "  lend id\n  lend id --owner --json",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			p, err := a.paths()
			if err != nil {
				return err
			}
			path := p.identityKey()
			if owner {
				path = p.ownerKey()
			}
			key, err := loadKey(path)
			if err != nil {
				return err
			}
			id, err := peerID(key)
			if err != nil {
				return err
			}
			r := struct {
				SchemaVersion int    `json:"schemaVersion"`
				PeerID        string `json:"peerId"`
			}{jsonSchema, id.String()}
			return a.show(r, func() error { return a.say("%s", id) })
		},
	}
	c.Flags().BoolVar(&owner, "owner", false, "the key that signs leases, not the machine's")
	return c
}

func loadIdentity(p paths) (ed25519.PrivateKey, error) { return loadKey(p.identityKey()) }

func loadKey(path string) (ed25519.PrivateKey, error) {
	key, err := ownerfile.LoadKey(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, usagef("lend init", "this machine has no identity yet")
	}
	return key, err
}
