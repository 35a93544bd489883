package npm

import (
	"crypto/sha512"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"hash"
	"strings"

	"github.com/lendcli/lend/protocol/name"
)

// ErrIntegrity means that the bytes that came are not those that were asked for.
var ErrIntegrity = errors.New("integrity mismatch")

// Integrity is the SHA-512 of a package's tarball. It is comparable; the zero
// value is never one of a package.
type Integrity struct{ sum [sha512.Size]byte }

const integrityPrefix = "sha512-"

// ParseIntegrity reads "sha512-" and the base64 of 64 bytes. Weaker hashes and lists
// of alternatives are refused.
func ParseIntegrity(s string) (Integrity, error) {
	var i Integrity
	text, ok := strings.CutPrefix(s, integrityPrefix)
	b, err := base64.StdEncoding.Strict().DecodeString(text)
	if !ok || err != nil || len(b) != len(i.sum) {
		return Integrity{}, fmt.Errorf("invalid integrity %s: want \"sha512-\" and the base64 of 64 bytes", name.Quote(s))
	}
	copy(i.sum[:], b)
	return i, nil
}

// String returns the one spelling that ParseIntegrity reads.
func (i Integrity) String() string {
	return integrityPrefix + base64.StdEncoding.EncodeToString(i.sum[:])
}

// check compares what was hashed into h; the error matches ErrIntegrity.
func (i Integrity) check(h hash.Hash) error {
	if subtle.ConstantTimeCompare(h.Sum(nil), i.sum[:]) != 1 {
		return ErrIntegrity
	}
	return nil
}
