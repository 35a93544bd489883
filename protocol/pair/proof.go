package pair

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/lendcli/lend/protocol/name"
)

// Sizes of what is exchanged, in bytes.
const (
	NonceSize = 32
	// Digits is how many check digits there are.
	Digits = 6
)

// Nonce is the random share of one end.
type Nonce [NonceSize]byte

// Proof is a keyed hash of an exchange so far.
type Proof [sha256.Size]byte

// Commitment is a hash of a nonce that is not told yet.
type Commitment [sha256.Size]byte

// Parties are the two ends, as the channel between them shows their keys.
type Parties struct{ Owner, Caller name.PeerID }

// Commit binds a caller to its nonce before it knows the owner's. spec: PAIR-4
func (p Parties) Commit(n Nonce) Commitment {
	h := sha256.New()
	h.Write(p.transcript("lend pair 1 commitment", n[:]))
	return Commitment(h.Sum(nil))
}

// CallerProof shows that the caller has the link. spec: PAIR-3
func (p Parties) CallerProof(s Secret, c Commitment, called name.Label) Proof {
	return p.mac(s, "lend pair 1 caller", c[:], []byte(called.String()))
}

// OwnerProof shows that the owner made it. spec: PAIR-3
func (p Parties) OwnerProof(s Secret, c Commitment, called name.Label, n Nonce) Proof {
	return p.mac(s, "lend pair 1 owner", c[:], []byte(called.String()), n[:])
}

// Equal compares in constant time.
func (p Proof) Equal(q Proof) bool { return hmac.Equal(p[:], q[:]) }

// Equal compares in constant time.
func (c Commitment) Equal(d Commitment) bool { return hmac.Equal(c[:], d[:]) }

// CheckDigits are what both people see: 6 decimal digits, the same if and only if (but
// for one case in a million) both ends have the same parties and nonces. spec: PAIR-5
func (p Parties) CheckDigits(owner, caller Nonce) string {
	sum := sha256.Sum256(p.transcript("lend pair 1 digits", owner[:], caller[:]))
	return fmt.Sprintf("%0*d", Digits, binary.BigEndian.Uint64(sum[:])%1_000_000)
}

func (p Parties) mac(s Secret, domain string, parts ...[]byte) Proof {
	h := hmac.New(sha256.New, s[:])
	h.Write(p.transcript(domain, parts...))
	return Proof(h.Sum(nil))
}

// transcript is the domain, both keys and the parts, each behind its length. spec: PAIR-2
func (p Parties) transcript(domain string, parts ...[]byte) []byte {
	var b []byte
	for _, part := range append([][]byte{[]byte(domain), p.Owner.Key(), p.Caller.Key()}, parts...) {
		b = append(binary.BigEndian.AppendUint16(b, uint16(len(part))), part...)
	}
	return b
}
