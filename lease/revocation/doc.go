// Package revocation holds the set of revocations that a gateway consults for every
// lease: by lease, invocation, holder, issuer, "issued before", or several of them
// together. It takes bytes and returns values: the file belongs to the caller.
//
// What cannot be read denies everything: a nil Set, a zero Set and the Set that
// Parse returns with an error revoke every lease.
package revocation
