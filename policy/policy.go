package policy

import (
	"maps"
	"slices"
	"sync"

	"github.com/lendcli/lend/policy/file"
	"github.com/lendcli/lend/policy/review"
	"github.com/lendcli/lend/policy/strict"
	"github.com/lendcli/lend/policy/surface"
	"github.com/lendcli/lend/protocol/name"
)

// MaxFile bounds a policy file, in bytes.
const MaxFile = file.MaxSize

// Unlimited is the value of a byte limit for which the file says "unlimited".
const Unlimited = file.Unlimited

// Kill is the Detached of an operation that a lost link ends at once.
const Kill = file.Kill

// The levels of a Finding. A policy with an error is not to be served.
const (
	LevelError   = review.LevelError
	LevelWarning = review.LevelWarning
)

// The values that other packages of the policy define and users of this one need.
type (
	// Problem is one thing that is wrong with the file, with its position.
	Problem = strict.Problem
	// Problems are at most 20 Problems of one file, in the order of their positions;
	// never empty where it is an error.
	Problems = strict.Problems
	// Position is a place in the policy file: file, line and column, both from 1.
	Position = strict.Position
	// IssuerRule is what the owner lets one issuer's leases do.
	IssuerRule = file.Issuer
	// Workspace is a directory of the owner under a name.
	Workspace = file.Workspace
	// Limits bound one operation, or the gateway.
	Limits = file.Limits
	// Surface is the public surface of one command under one rule.
	Surface = surface.Surface
	// Target names one command of one version of a Connector.
	Target = surface.Target
	// Finding is one thing that Lint has to say about the file.
	Finding = review.Finding
)

// Policy is one loaded file. Parse makes it; it is immutable but for its cache, and
// safe for concurrent use.
type Policy struct {
	file *file.File

	mu    sync.Mutex // guards cache
	cache map[surfaceKey]*Surface
}

// Parse reads one policy file. The filename only appears in positions. The error
// is a Problems; the Policy is nil with it.
func Parse(filename string, data []byte) (*Policy, error) {
	f, err := file.Parse(filename, data)
	if err != nil {
		return nil, err
	}
	return &Policy{file: f, cache: map[surfaceKey]*Surface{}}, nil
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
	for _, id := range p.file.Peers {
		if id == peer {
			return AdmitNamed
		}
	}
	for _, i := range p.file.Issuers {
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

// issuer is nil for a nil policy and for an issuer that the file does not have.
func (p *Policy) issuer(id name.PeerID) *IssuerRule {
	if p == nil {
		return nil
	}
	return p.file.Issuer(id)
}

// PassesOn tells whether a peer may pass leases on: the file names it, and leases of
// some issuer may be passed on.
func (p *Policy) PassesOn(peer name.PeerID) bool {
	return p.Admission(peer) == AdmitNamed &&
		slices.ContainsFunc(p.file.Issuers, func(i *IssuerRule) bool { return i.MaxDepth > 0 })
}

// Digest names the bytes of the file: 64 lower-case hexadecimal digits of
// SHA-256.
func (p *Policy) Digest() string { return p.file.Digest }

// File returns the filename that Parse was given.
func (p *Policy) File() string { return p.file.Doc.Position(nil).File }

// Workspaces returns the workspaces of the file, sorted by name.
func (p *Policy) Workspaces() []Workspace { return slices.Clone(p.file.Workspaces) }

// Peers returns the peers that the file names.
func (p *Policy) Peers() map[name.Label]name.PeerID { return maps.Clone(p.file.Peers) }

// Issuers returns the issuers of the file, sorted by name.
func (p *Policy) Issuers() []IssuerRule {
	out := make([]IssuerRule, 0, len(p.file.Issuers))
	for _, i := range p.file.Issuers {
		out = append(out, *i)
	}
	return out
}

// Schema returns a JSON Schema (2020-12) of the file for editors, made from the
// tables that the loader checks by. It accepts every file that Parse accepts.
func Schema() []byte { return file.Schema() }

// Limits returns the limits of the whole gateway, defaults filled in.
func (p *Policy) Limits() Limits { return p.file.Gateway() }

// Lint says what does not fit the Connectors' contracts (errors) and what is risky
// (warnings, and errors where a grant amounts to a shell), each once, in the order
// of the file. A policy with an error is not to be served. With a nil source only
// what the file itself declares is looked at.
func (p *Policy) Lint(source Contracts) []Finding { return review.Lint(p.file, source) }

// Access says in sentences who may do what, sorted, and who can never do anything.
// It is what an owner reviews. Commands whose contract the source does not have are
// said to be so.
func (p *Policy) Access(source Contracts) []string { return review.Access(p.file, source) }

// ParseSurface reads what Surface.Marshal wrote, strictly and bounded.
func ParseSurface(data []byte) (*Surface, error) { return surface.Parse(data) }
