// Package shim keeps small files in a private directory that is meant for PATH. Each
// is a name for the commands of one Connector on this machine, and leads through
// every check that a peer's call would meet: it calls lend connector try, and holds
// no path of what the Connector runs.
//
// A file is ours if it is, byte for byte, what would be written for what it says of
// itself. Nothing else is ever replaced or removed.
//
// They have nothing to do with cmd/lend-shim, which supervises processes, nor with
// what a caller on another machine has.
//
// See docs/localhost.md.
package shim
