package name

import (
	"github.com/mr-tron/base58"
)

// PeerID is a libp2p peer ID that carries an Ed25519 public key, in the base58
// form "12D3KooW…" (52 bytes). Other key types and other spellings are refused.
type PeerID struct{ s string }

// peerPrefix is the identity multihash (0x00, 36 bytes) of a libp2p public key
// message: type Ed25519 (08 01), data of 32 bytes (12 20).
//
//nolint:gochecknoglobals // immutable
var peerPrefix = []byte{0x00, 0x24, 0x08, 0x01, 0x12, 0x20}

const (
	peerRule = "an Ed25519 peer ID (12D3KooW…)"
	maxPeer  = 64 // bytes that are looked at
	keySize  = 32
)

// ParsePeerID checks s; the error is an *InvalidError.
func ParsePeerID(s string) (PeerID, error) {
	if len(s) > maxPeer {
		return PeerID{}, &InvalidError{Kind: "peer ID", Value: s, Rule: peerRule + " of at most 64 bytes"}
	}
	b, _ := base58.Decode(s) // whatever it is: it counts only if s is how it is written
	if len(b) != len(peerPrefix)+keySize || writePeer(b[len(peerPrefix):]) != s {
		return PeerID{}, &InvalidError{Kind: "peer ID", Value: s, Rule: peerRule}
	}
	return PeerID{s}, nil
}

// PeerIDFromKey returns the ID of a 32-byte Ed25519 public key. The error is an
// *InvalidError if the length is another.
func PeerIDFromKey(key []byte) (PeerID, error) {
	if len(key) != keySize {
		return PeerID{}, &InvalidError{Kind: "peer key", Value: "", Rule: "32 bytes"}
	}
	return PeerID{writePeer(key)}, nil
}

func writePeer(key []byte) string {
	return base58.Encode(append(append([]byte{}, peerPrefix...), key...))
}

// Key returns the 32 bytes of the Ed25519 public key, nil for the zero value.
func (p PeerID) Key() []byte {
	if p.s == "" {
		return nil
	}
	b, err := base58.Decode(p.s)
	if err != nil || len(b) != len(peerPrefix)+keySize {
		return nil
	}
	return b[len(peerPrefix):]
}

// String returns the value as it was parsed, "" for the zero value.
func (p PeerID) String() string { return p.s }

// IsZero tells whether the value is absent.
func (p PeerID) IsZero() bool { return p.s == "" }

// MarshalText writes the value; the zero value is written as nothing.
func (p PeerID) MarshalText() ([]byte, error) { return []byte(p.s), nil }

// UnmarshalText is ParsePeerID.
func (p *PeerID) UnmarshalText(b []byte) (err error) {
	*p, err = ParsePeerID(string(b))
	return err
}
