// Package signature says who published a release of a Connector: Ed25519 signatures in
// the form of golang.org/x/mod/sumdb/note over the release digest, which covers the
// manifest and every byte of the artifact.
//
//	NewKey, Sign   the publisher: a private file, a note beside the release
//	Trust.Check    the owner: which of the signers are trusted; refuses what is not true
//	File           the owner's private list of publishers, and of what has to be signed
//
// A signature is optional. One that is there must be of exactly this release; where the
// owner requires one, it must be by a publisher that they trust for this Connector. The
// text that is signed is
//
//	lend connector release v1
//	KEY VERSION
//	DIGEST
//
// each line ended by a newline. Signatures travel beside a release and are not part of
// its digest, so that they can be added later. See docs/localhost.md.
package signature
