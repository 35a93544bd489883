// Package compare says what changes between two policy files.
//
//	Policies  old, new, the contracts of the Connectors → Report
//
// For each issuer, each holder and each command it takes the surfaces that the rules
// give on both sides, and asks of each whether the other side accepts everything that
// it accepts. The answer is exact for lists of values, bounds, lengths and what is
// required, and also where several rules together are what one rule was. Of two
// different patterns it cannot be known: that is said as a change, never as nothing.
// So what is newly allowed is always in the Report, and it may say more than there
// is, not less. What requests show is package replay's.
//
// The package is pure.
package compare
