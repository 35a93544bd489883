// Package pairing is the caller's side of pairing: it uses an invitation, shows the check
// digits, and waits for the owner's decision. It keeps nothing.
package pairing
