// Package pair holds the bytes of pairing (/lend/pair/1.0.0), for both ends: the link of
// an invitation, the frames, what proves that one has the link, and the check digits
// that two people compare.
//
//	Link      what the owner hands over: addresses, the owner's key, a secret of 128 bits
//	Parties   who pairs, as the channel shows; proofs, commitments, digits
//	Read      one frame; Write sends one
//
// The package is pure: it has no clock, no network and no state.
// docs/pairing.md is its text.
package pair
