package file

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"time"

	"github.com/lendcli/lend/policy/strict"
	"github.com/lendcli/lend/protocol/argv"
	"github.com/lendcli/lend/protocol/name"
)

const (
	// MaxSize bounds a policy file, in bytes.
	MaxSize = 1 << 20
	// MaxDepth bounds Issuer.MaxDepth: a chain has at most three leases.
	MaxDepth = 2
)

// File is one policy file. Holders must not change it.
type File struct {
	// Doc is the document, for positions.
	Doc *strict.Document
	// Digest is the SHA-256 of the bytes: 64 lower-case hexadecimal digits.
	Digest     string
	Issuers    []*Issuer // sorted by name
	Peers      map[name.Label]name.PeerID
	Groups     map[name.Label][]name.PeerID
	Workspaces []Workspace // sorted by name
	// Limits are as written: 0 means that nothing was.
	Limits Limits
	// Declared are the commands that the file declares for CLIs.
	Declared map[name.ConnectorKey]map[name.Command]*Declared
	Rules    []*Rule // sorted by name
	Tests    []*Test // in the order of the file
}

// Issuer is what the owner lets one issuer's leases do.
type Issuer struct {
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
	// MaxDepth is how often a lease may be passed on, 0 (never) to MaxDepth. Everybody
	// who holds one on the way is a peer that the issuer may name.
	MaxDepth int
	// Until ends the trust; the zero time means never.
	Until    time.Time
	Position strict.Position
}

// MayGrant tells whether leases of the issuer may be about a Connector.
func (i Issuer) MayGrant(key name.ConnectorKey) bool {
	return i.AnyConnector || slices.Contains(i.Connectors, key)
}

// MayName tells whether a lease of the issuer may name this holder.
func (i Issuer) MayName(peer name.PeerID) bool {
	return !peer.IsZero() && (i.HoldersAny || slices.Contains(i.Holders, peer))
}

// Trusted tells whether the issuer is trusted at a time. The zero time is never
// before Until.
func (i Issuer) Trusted(now time.Time) bool {
	return i.Until.IsZero() || !now.IsZero() && now.Before(i.Until)
}

// Workspace is a directory of the owner under a name. Path is absolute and clean;
// nothing here looks at it.
type Workspace struct {
	Name     name.Label
	Path     string
	Position strict.Position
}

// Declared is a command that the file declares for a CLI.
type Declared struct {
	Command argv.Command
	Key     *strict.Node
}

// Rule is one allow rule.
type Rule struct {
	Name     string
	Position strict.Position
	Node     *strict.Node
	// To are the names as written; Peers are those that they resolve to, and
	// HoldersOf the issuers whose holders the rule is about.
	To        []string
	Peers     map[name.PeerID]bool
	HoldersOf map[name.PeerID]bool
	// Issuers are those under whose leases the rule holds; nil means each.
	Issuers    map[name.PeerID]bool
	Connector  name.ConnectorKey
	Versions   []name.Version
	Connection name.ConnectionID // zero: the only one
	Workspace  name.Label        // zero: none
	Commands   []*Grant          // sorted by name
	Limits     Limits            // as written: 0 means that nothing was
}

// Under tells whether the rule holds under leases of an issuer, as far as the rule
// is concerned.
func (r *Rule) Under(issuer name.PeerID) bool { return r.Issuers == nil || r.Issuers[issuer] }

// Grant is one command of a rule.
type Grant struct {
	Name   name.Command
	Key    *strict.Node
	Narrow map[name.Parameter]Narrowing
	// Record is where the rule says that the arguments are recorded; nil if it does not.
	Record *strict.Node
}

// Narrowing is what a rule says about one parameter.
type Narrowing struct {
	Declaration argv.ParameterDeclaration
	Forbidden   bool
	Key, Value  *strict.Node
}

// Of makes the narrowing of a parameter of c. The error joins
// *argv.DeclarationError values.
func (n Narrowing) Of(c argv.Command, parameter name.Parameter) (argv.Narrowing, error) {
	if n.Forbidden {
		return argv.Narrowing{Forbidden: true}, nil
	}
	for _, p := range c.Parameters {
		if p.Name == parameter {
			return n.Declaration.Narrowing(p)
		}
	}
	return argv.Narrowing{}, &argv.DeclarationError{Path: "parameters." + parameter.String(), Msg: "the command has no such parameter"}
}

// Test is one test of the file: a request and the answer that is wanted.
type Test struct {
	Name     string
	Position strict.Position

	Issuer, Peer name.PeerID
	Connector    name.ConnectorKey
	Version      name.Version
	Command      name.Command
	Arguments    []string
	Pins         map[name.Parameter][]string
	Stdin        bool
	Now          time.Time

	Allow bool
	Rule  string   // "": not looked at
	Argv  []string // nil: not looked at
	Code  string   // "": not looked at
}

// Parse reads one policy file. The filename only appears in positions. The error
// is a strict.Problems; the File is nil with it.
func Parse(filename string, data []byte) (*File, error) {
	doc, err := strict.Parse(filename, data, MaxSize)
	if err != nil {
		return nil, err
	}
	doc.Check(fileShape())
	sum := sha256.Sum256(data)
	f := &File{Doc: doc, Digest: hex.EncodeToString(sum[:])}
	(&loader{File: f}).load()
	if err := doc.Err(); err != nil {
		return nil, err
	}
	return f, nil
}

// Schema returns a JSON Schema (2020-12) of the file for editors, made from the
// tables that Parse checks by. It accepts every file that Parse accepts.
func Schema() []byte { return fileShape().JSONSchema("lend policy") }

// Issuer returns the issuer with an ID, nil if there is none.
func (f *File) Issuer(id name.PeerID) *Issuer {
	if f == nil || id.IsZero() {
		return nil
	}
	for _, i := range f.Issuers {
		if i.ID == id {
			return i
		}
	}
	return nil
}

// NameOf returns the file's name of a peer, else its ID.
func (f *File) NameOf(peer name.PeerID) string {
	for _, l := range slices.SortedFunc(maps.Keys(f.Peers), compareLabels) {
		if f.Peers[l] == peer {
			return l.String()
		}
	}
	return peer.String()
}

func compareLabels(a, b name.Label) int { return cmp.Compare(a.String(), b.String()) }

func comparePeers(a, b name.PeerID) int { return cmp.Compare(a.String(), b.String()) }

// Codes returns the reason codes that a test may want, sorted. Package policy has
// them, and a test compares.
func Codes() []string {
	return []string{
		"ARGUMENT_REJECTED", "COMMAND_UNKNOWN", "CONNECTOR_UNKNOWN", "DENIED", "INPUT_REJECTED", "INTERNAL",
		"POLICY_DENIED", "ROUTE_UNAVAILABLE", "VERSION_UNKNOWN",
	}
}
