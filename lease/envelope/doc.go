// Package envelope is the outer form that a lease and a signed revocation share: a
// libp2p signed envelope with an Ed25519 key around a protobuf payload, both in the
// one encoding that a writer of the same values writes. It takes bytes and returns
// values, and it trusts nobody: who may sign what is for the packages above to say.
package envelope
