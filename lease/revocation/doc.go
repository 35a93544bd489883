// Package revocation holds the set of revocations that a gateway consults for every
// lease: by lease, invocation, holder, issuer, "issued before", or several of them
// together. It takes bytes and returns values: the file belongs to the caller.
//
// What cannot be read denies everything: a nil Set, a zero Set and the Set that
// Parse returns with an error revoke every lease.
//
// A revocation that travels is a Statement in a libp2p signed envelope (Seal, Open).
// An Authority says what the gateway keeps of it: an issuer revokes its own leases,
// the owner's key any. The numbered rules are those of docs/revocation.md.
package revocation
