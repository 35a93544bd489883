package lease

import (
	"crypto/rand"
	"encoding/hex"
	"time"

	"github.com/lendcli/lend/lease/envelope"
	"github.com/lendcli/lend/protocol/name"
)

// Bounds of a lease. Sizes are in bytes. spec: LEASE-1, LEASE-8 to LEASE-14,
// LEASE-29, LEASE-30.
const (
	MaxEnvelope   = envelope.MaxSize // one sealed lease
	MaxChain      = 3                // envelopes of a chain
	MaxDepth      = MaxChain - 1     // links below a root
	MaxGrants     = 64
	MaxCommands   = 64 // of one grant
	MaxPins       = 32 // of one grant
	MaxAllowed    = 64 // literals of one pin
	MaxPurpose    = 256
	MaxOperations = 1_000_000
	MaxConcurrent = 1024

	DefaultLife = 10 * time.Minute
	DefaultCap  = time.Hour      // where the issuer's rule names none
	HardCap     = 24 * time.Hour // whatever the issuer's rule says
	DefaultSkew = 30 * time.Second
	MaxSkew     = 2 * time.Minute

	MaxFile      = 64 << 10 // a lease file
	MaxAddresses = 8        // hints in it
	MaxAddress   = 512      // one of them
)

// ID names one lease: 16 random bytes, not all zero. It is shown in lower-case
// hexadecimal.
type ID [16]byte

// NewID returns a random ID. It never fails: crypto/rand does not return on
// failure.
func NewID() ID {
	var id ID
	_, _ = rand.Read(id[:])
	return id
}

// ParseID reads the 32 lower-case hexadecimal digits that String writes; the
// error is a *name.InvalidError.
func ParseID(s string) (ID, error) {
	var id ID
	if len(s) == 2*len(id) {
		if _, err := hex.Decode(id[:], []byte(s)); err == nil && id.String() == s && !id.IsZero() {
			return id, nil
		}
	}
	return ID{}, &name.InvalidError{Kind: "lease ID", Value: s, Rule: "32 lower-case hexadecimal digits, not all zero"}
}

func (id ID) String() string { return hex.EncodeToString(id[:]) }

// IsZero tells whether the ID is absent.
func (id ID) IsZero() bool { return id == ID{} }

// MarshalText is String.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText is ParseID.
func (id *ID) UnmarshalText(b []byte) (err error) {
	*id, err = ParseID(string(b))
	return err
}

// Authority says whose Connector runs.
type Authority uint8

// The authorities. Zero is refused, and so is every other.
const (
	AuthorityUnset Authority = 0
	AuthorityOwner Authority = 1
)

func (a Authority) String() string {
	switch a {
	case AuthorityOwner:
		return "owner"
	case AuthorityUnset:
		return "unset"
	default:
		return "unknown"
	}
}

// Lease is the content of one signed lease: of a root, of a link of a chain, or
// what all links of a chain say together. Times have a resolution of one
// millisecond and are UTC. Holders of a Lease that a Verifier or Open returned
// must not change what it refers to.
type Lease struct {
	ID ID
	// Issuer signed it. Of a whole chain it is the root's issuer.
	Issuer     name.PeerID
	Holder     name.PeerID
	Gateway    name.PeerID
	Invocation name.InvocationID
	Authority  Authority
	// Grants are 1 to MaxGrants; Seal sorts them.
	Grants []Grant
	// IssuedAt ≤ NotBefore < NotAfter. The life that an issuer's rule bounds is
	// NotAfter - IssuedAt.
	IssuedAt, NotBefore, NotAfter time.Time
	// MaxOperations (1 to 1 000 000) bounds the starts under this lease,
	// MaxConcurrent (1 to 1024) those at the same time.
	MaxOperations, MaxConcurrent int
	// Purpose is printable text for the audit; show it with name.Quote.
	Purpose string
	// DepthLeft is how many links may follow below this one, 0 to MaxDepth.
	DepthLeft int
	// Parent is the SHA-256 of the parent's envelope, zero in a root.
	Parent [32]byte
	// Critical names rules that the gateway must know; this version knows none.
	Critical []string
}

// Grant allows commands of one exact version of one Connector.
type Grant struct {
	Connector name.ConnectorKey
	Version   name.Version
	Commands  []name.Command
	// Pins allow only these literals (canonical spellings, 1 to MaxAllowed) of a
	// parameter, for every command of the grant.
	Pins map[name.Parameter][]string
	// Finish lets work that runs when the lease expires go on to its end.
	Finish bool
}
