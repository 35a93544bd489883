package policy

import (
	"time"

	"github.com/lendcli/lend/policy/strict"
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

// Policy is one loaded file. Parse makes it.
type Policy struct {
	file     string
	digest   string
	issuers  map[name.PeerID]*IssuerRule
	peers    map[name.PeerID]name.Label
	stranger bool
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

// Parse reads one policy file. The filename only appears in positions. The error
// is a Problems.
func Parse(filename string, data []byte) (*Policy, error) {
	return nil, Problems{{Position: Position{File: filename, Line: 1, Column: 1}, Message: "not implemented"}}
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
	switch {
	case p == nil:
		return AdmitNone
	case !p.peers[peer].IsZero():
		return AdmitNamed
	case p.stranger:
		return AdmitStranger
	}
	return AdmitNone
}

// Issuer returns the rule of a trusted issuer. Whether its Until has passed is
// for the caller and for Decide to check.
func (p *Policy) Issuer(id name.PeerID) (IssuerRule, bool) {
	if p == nil || p.issuers[id] == nil {
		return IssuerRule{}, false
	}
	return *p.issuers[id], true
}

// Digest names the bytes of the file: 64 lower-case hexadecimal digits of
// SHA-256.
func (p *Policy) Digest() string { return p.digest }

// Limits returns the limits of the whole gateway, defaults filled in.
func (p *Policy) Limits() Limits { return Limits{} }

// Workspace is a directory of the owner under a name. Path is absolute and clean;
// this package never looks at it.
type Workspace struct {
	Name     name.Label
	Path     string
	Position Position
}

// Workspaces returns the workspaces of the file, sorted by name.
func (p *Policy) Workspaces() []Workspace { return nil }

// Peers returns the peers that the file names.
func (p *Policy) Peers() map[name.Label]name.PeerID { return nil }

// Schema returns a JSON Schema (2020-12) of the file for editors, made from the
// tables that the loader checks by. It accepts every file that Parse accepts.
func Schema() []byte { return nil }
