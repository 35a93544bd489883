package manifest

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/lendcli/lend/protocol/argv"
)

// ManagedCLIContractHash returns "sha256:" and 64 lower-case hexadecimal digits
// over the RFC 8785 form of what c means for an invocation. Order of commands and
// parameters, descriptions, install paths and entrypoints do not change it; fixed
// arguments, places, schemas and timeouts do. An error means that c cannot be
// written canonically; a validated contract can.
func ManagedCLIContractHash(c argv.Contract) (string, error) {
	b, err := argv.CanonicalJSON(c.Semantics())
	if err != nil {
		return "", fmt.Errorf("hash contract: %w", err)
	}
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:]), nil
}

// releaseDomain keeps a release digest from being any other hash.
const releaseDomain = "lend connector release v1\x00"

// ReleaseDigest returns the 64 lower-case hexadecimal digits that name a release:
// SHA-256 over the domain, the SHA-256 of the canonical manifest, and the artifact's
// tree digest. tree is 64 hexadecimal digits, as artifact.Snapshot.Digest gives.
func ReleaseDigest(m Manifest, tree string) (string, error) {
	t, err := hex.DecodeString(tree)
	if err != nil || len(t) != sha256.Size || len(m.canonical) == 0 {
		return "", errors.New("digest release: want a parsed manifest and a tree digest of 64 hexadecimal digits")
	}
	c := sha256.Sum256(m.canonical)
	h := sha256.New()
	h.Write([]byte(releaseDomain))
	h.Write(c[:])
	h.Write(t)
	return hex.EncodeToString(h.Sum(nil)), nil
}
