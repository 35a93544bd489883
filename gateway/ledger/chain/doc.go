// Package chain reads the segments of a ledger's directory as the one log that they
// are: the first records that tie them together, the closed invocations that they
// count, walking over all records, verification offline, and whether one checkpoint is
// of a later state than another. It changes nothing, and needs no keys. docs/ledger.md
// is the specification.
package chain
