// Package edit changes a policy file as an owner would by hand: what it does not have
// to touch stays byte for byte, comments included.
//
//	Allow      one more rule (or more commands in one), and a peer's name if it is new
//	Introduce  a peer's name and ID, and nothing else
//	Deny       takes commands away from one peer, and from nobody else
//	Dismiss    takes a peer out of the file
//
// Each returns a Result only if it was checked: the file that came out was read anew,
// has no error and no failing test, gives the peer what was asked (or no longer gives
// it, under any issuer), and differs for nobody else. Otherwise the error is a
// *RefusedError, and nothing is returned. The package is pure: writing is the caller's.
package edit
