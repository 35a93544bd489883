// Package surface joins a rule of the policy file with the contract of a Connector:
// the result is the public surface of one command, which is all that a caller can
// reach of it.
//
//	Make      rule × contract → *Surface: the command, narrowed and compiled
//	Accepts   arguments → the canonical call, under the rule's limits
//	Marshal   canonical JSON, to be kept for the life of an invocation
//	Parse     reads it again, strictly
//
// A kept surface and a new one are compared by what they would start (package
// policy), not by their bytes. A Surface is immutable and safe for concurrent use.
// The package is pure. See docs/policy.md §3.
package surface
