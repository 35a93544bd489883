package folder

import (
	"bytes"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"strings"

	"golang.org/x/mod/sumdb/note"

	"github.com/lendcli/lend/gateway/ledger/segment"
	"github.com/lendcli/lend/protocol/name"
)

// Keys are what lies beside the records.
type Keys struct {
	mac []byte
	// Signer signs the checkpoints.
	Signer note.Signer
	// VerifierKey is the public half of Signer, as package note writes it.
	VerifierKey string
}

// Hash names a row of a view: 16 bytes of a SHA-256 over the ledger's secret and
// the fields, so that nobody can look for two that collide.
type Hash [16]byte

// Compare orders hashes by their bytes.
func (h Hash) Compare(other Hash) int { return bytes.Compare(h[:], other[:]) }

// Digest is the HMAC-SHA-256 of the parts, each framed by its length.
func (k *Keys) Digest(parts [][]byte) [32]byte {
	h := hmac.New(sha256.New, k.mac)
	var n [8]byte
	for _, p := range parts {
		binary.BigEndian.PutUint64(n[:], uint64(len(p)))
		h.Write(n[:])
		h.Write(p)
	}
	return [32]byte(h.Sum(nil))
}

const maxHashed = macSize + 1 + 64 + 2 + name.MaxInvocationID + name.MaxOperationID

func (k *Keys) hash(tag byte, issuer, holder, a, b []byte) Hash {
	buf := make([]byte, 0, maxHashed)
	buf = append(append(buf, k.mac...), tag)
	buf = append(append(buf, issuer...), holder...)
	buf = append(append(buf, byte(len(a))), a...)
	buf = append(append(buf, byte(len(b))), b...)
	sum := sha256.Sum256(buf)
	return Hash(sum[:16])
}

// Operation hashes what names an operation; the peers are raw keys.
func (k *Keys) Operation(issuer, holder, invocation, operation []byte) Hash {
	return k.hash('o', issuer, holder, invocation, operation)
}

// Scope hashes what names the work of one holder in one invocation.
func (k *Keys) Scope(issuer, holder, invocation []byte) Hash {
	return k.hash('s', issuer, holder, invocation, nil)
}

// Lease hashes what names a lease.
func (k *Keys) Lease(issuer, lease []byte) Hash {
	return k.hash('l', issuer, nil, lease, nil)
}

// ReadKeys reads what lies beside the records of the ledger in dir.
func ReadKeys(dir string) (Keys, error) {
	mac, err := readSmall(dir, macName)
	if err != nil {
		return Keys{}, err
	}
	text, err := readSmall(dir, signerName)
	if err != nil {
		return Keys{}, err
	}
	skey := strings.TrimSuffix(string(text), "\n")
	signer, err := note.NewSigner(skey)
	if err != nil || len(mac) != macSize {
		return Keys{}, &segment.DamageError{What: "a key file"}
	}
	verifier, err := verifierOf(skey)
	if err != nil {
		return Keys{}, &segment.DamageError{What: "a key file"}
	}
	return Keys{mac: mac, Signer: signer, VerifierKey: verifier}, nil
}

// verifierOf returns the public half of a signer key, which note keeps to itself:
// "PRIVATE+KEY+name+hash+" and base64 of the algorithm's number and the seed.
func verifierOf(skey string) (string, error) {
	parts := strings.SplitN(skey, "+", 5)
	raw, err := base64.StdEncoding.DecodeString(parts[len(parts)-1])
	if err != nil || len(parts) != 5 || len(raw) != 1+ed25519.SeedSize {
		return "", errors.New("not a signer key")
	}
	public, ok := ed25519.NewKeyFromSeed(raw[1:]).Public().(ed25519.PublicKey)
	if !ok {
		return "", errors.New("not an Ed25519 key")
	}
	return note.NewEd25519VerifierKey(parts[2], public)
}
