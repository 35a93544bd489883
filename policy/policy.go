package policy

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/lendcli/lend/policy/strict"
	"github.com/lendcli/lend/protocol/argv"
	"github.com/lendcli/lend/protocol/name"
)

// MaxFile bounds a policy file, in bytes.
const MaxFile = 1 << 20

// Problem is one thing that is wrong with the file, with its position.
type Problem = strict.Problem

// Problems are at most 20 Problems of one file, in the order of their positions;
// never empty where it is an error.
type Problems = strict.Problems

// Position is a place in the policy file: file, line and column, both from 1.
type Position = strict.Position

// Policy is one loaded file. Parse makes it; it is immutable but for its cache.
type Policy struct {
	doc        *strict.Document
	digest     string
	issuers    []*IssuerRule // sorted by name
	peers      map[name.Label]name.PeerID
	groups     map[name.Label][]name.PeerID
	workspaces []Workspace
	limits     Limits // as written: 0 means nothing was
	declared   map[name.ConnectorKey]map[name.Command]*declared
	rules      []*rule // sorted by name
	tests      []*test

	mu    sync.Mutex // guards cache
	cache map[surfaceKey]*Surface
}

// declared is a command that the file declares for a CLI.
type declared struct {
	command argv.Command
	key     *strict.Node
}

// rule is one allow rule.
type rule struct {
	name       string
	pos        Position
	node       *strict.Node
	toNames    []string
	peers      map[name.PeerID]bool
	holdersOf  map[name.PeerID]bool // issuers
	issuers    map[name.PeerID]bool // nil: each of the file
	connector  name.ConnectorKey
	versions   []name.Version
	connection name.ConnectionID
	workspace  name.Label
	commands   []*grant // sorted by name
	limits     Limits   // as written: 0 means nothing was
}

// grant is one command of a rule.
type grant struct {
	name   name.Command
	key    *strict.Node
	narrow map[name.Parameter]narrowing
}

// narrowing is what a rule says about one parameter.
type narrowing struct {
	declaration argv.ParameterDeclaration
	forbidden   bool
	key         *strict.Node
	value       *strict.Node
}

// IssuerRule is what the owner lets one issuer's leases do.
type IssuerRule struct {
	Name name.Label
	ID   name.PeerID
	// MaxLife bounds the life of a lease, 1 s to 24 h; 1 h if the file says nothing.
	MaxLife time.Duration
	// AnyConnector lifts the bound of Connectors; the rules bind nevertheless.
	AnyConnector bool
	Connectors   []name.ConnectorKey
	// HoldersAny lets the issuer name peers that the file does not know.
	HoldersAny bool
	// Holders are the peers that a lease of this issuer may name, sorted; unused
	// with HoldersAny.
	Holders []name.PeerID
	// Until ends the trust; the zero time means never.
	Until    time.Time
	Position Position
}

// MayGrant tells whether leases of the issuer may be about a Connector.
func (i IssuerRule) MayGrant(key name.ConnectorKey) bool {
	return i.AnyConnector || slices.Contains(i.Connectors, key)
}

// MayName tells whether a lease of the issuer may name this holder.
func (i IssuerRule) MayName(peer name.PeerID) bool {
	return !peer.IsZero() && (i.HoldersAny || slices.Contains(i.Holders, peer))
}

// Trusted tells whether the issuer is trusted at a time. The zero time is never
// before Until.
func (i IssuerRule) Trusted(now time.Time) bool {
	return i.Until.IsZero() || !now.IsZero() && now.Before(i.Until)
}

// Parse reads one policy file. The filename only appears in positions. The error
// is a Problems; the Policy is nil with it.
func Parse(filename string, data []byte) (*Policy, error) {
	doc, err := strict.Parse(filename, data, MaxFile)
	if err != nil {
		return nil, err
	}
	doc.Check(fileShape())
	sum := sha256.Sum256(data)
	p := &Policy{doc: doc, digest: hex.EncodeToString(sum[:]), cache: map[surfaceKey]*Surface{}}
	(&loader{Policy: p}).load()
	if err := doc.Err(); err != nil {
		return nil, err
	}
	return p, nil
}

// Admission says what the policy makes of a peer that connects.
type Admission uint8

// The admissions; the zero value refuses.
const (
	// AdmitNone: the peer is not named and no issuer may name strangers.
	AdmitNone Admission = iota
	// AdmitStranger: some issuer may name holders that the file does not know.
	AdmitStranger
	// AdmitNamed: the file names the peer.
	AdmitNamed
)

// Admission tells whether a peer may connect at all, before any lease is seen.
func (p *Policy) Admission(peer name.PeerID) Admission {
	if p == nil || peer.IsZero() {
		return AdmitNone
	}
	for _, id := range p.peers {
		if id == peer {
			return AdmitNamed
		}
	}
	for _, i := range p.issuers {
		if i.HoldersAny {
			return AdmitStranger
		}
	}
	return AdmitNone
}

// Issuer returns the rule of a trusted issuer. Whether its Until has passed is
// for IssuerRule.Trusted, and for Decide, to say.
func (p *Policy) Issuer(id name.PeerID) (IssuerRule, bool) {
	if i := p.issuer(id); i != nil {
		return *i, true
	}
	return IssuerRule{}, false
}

func (p *Policy) issuer(id name.PeerID) *IssuerRule {
	if p == nil || id.IsZero() {
		return nil
	}
	for _, i := range p.issuers {
		if i.ID == id {
			return i
		}
	}
	return nil
}

// Digest names the bytes of the file: 64 lower-case hexadecimal digits of
// SHA-256.
func (p *Policy) Digest() string { return p.digest }

// Workspace is a directory of the owner under a name. Path is absolute and clean;
// this package never looks at it.
type Workspace struct {
	Name     name.Label
	Path     string
	Position Position
}

// Workspaces returns the workspaces of the file, sorted by name.
func (p *Policy) Workspaces() []Workspace { return slices.Clone(p.workspaces) }

// Peers returns the peers that the file names.
func (p *Policy) Peers() map[name.Label]name.PeerID { return maps.Clone(p.peers) }

// Issuers returns the issuers of the file, sorted by name.
func (p *Policy) Issuers() []IssuerRule {
	out := make([]IssuerRule, 0, len(p.issuers))
	for _, i := range p.issuers {
		out = append(out, *i)
	}
	return out
}

// Schema returns a JSON Schema (2020-12) of the file for editors, made from the
// tables that the loader checks by. It accepts every file that Parse accepts.
func Schema() []byte { return fileShape().JSONSchema("lend policy") }

// nameOf returns the file's name of a peer, else its ID.
func (p *Policy) nameOf(peer name.PeerID) string {
	for _, l := range slices.SortedFunc(maps.Keys(p.peers), compareLabels) {
		if p.peers[l] == peer {
			return l.String()
		}
	}
	return peer.String()
}

func compareLabels(a, b name.Label) int { return cmp.Compare(a.String(), b.String()) }

func comparePeers(a, b name.PeerID) int { return cmp.Compare(a.String(), b.String()) }
