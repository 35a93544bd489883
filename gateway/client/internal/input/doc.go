// Package input is what a caller reads for a command: whether it can be interrupted, and
// what is said when it cannot be read.
package input
