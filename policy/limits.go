package policy

import "time"

// Unlimited is the value of a byte limit for which the file says "unlimited".
const Unlimited int64 = -1

// Limits bound one operation, or (the first three) the gateway. No field of a
// Limits that this package returns is zero, but for those that say so.
type Limits struct {
	// OperationsPerPeer and Operations run at the same moment; StartsPerMinute is
	// per peer. They are those of the gateway in every Limits.
	OperationsPerPeer int
	Operations        int
	StartsPerMinute   int
	// Stdin, Stdout and Stderr are bytes, or Unlimited. Stdin is 0 in a Decision
	// for a command that reads none, and Unlimited in Policy.Limits if the file
	// does not lower what commands declare.
	Stdin  int64
	Stdout int64
	Stderr int64
	// Run bounds the time of an operation; 0 in Policy.Limits if the file does
	// not lower what commands declare.
	Run time.Duration
	// Arguments and ArgumentBytes bound the rendered argv.
	Arguments     int
	ArgumentBytes int
}
