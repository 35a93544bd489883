// Package lease holds the lease: a signed statement by which an issuer lets one
// holder start commands on one gateway for one invocation. It takes bytes and
// returns values: it has no files, no clock, no goroutines and no log.
//
// Seal writes a lease into a libp2p signed envelope; a Verifier checks what a
// peer presents, in the order of docs/lease.md, and the first check that fails
// decides. The error is an *Error whose Reason names that check; Reason.Precise
// tells whether the peer may learn it. What was verified is cached by the hash of
// the bytes and the peer; issuer, time window, length of life and revocation are
// looked at every time. Open and Lease.Usable are the caller's side: they tell
// the holder what is wrong before anything is sent, and trust nothing.
//
// A lease is decoded strictly: bytes that are accepted are the bytes that the
// package would write for the same values. Armor and ParseArmor are the text form
// of a lease file, with unsigned address hints. Package revocation has the set that
// a gateway consults, and the signed form that travels.
//
// The numbered rules are those of docs/lease.md.
package lease
