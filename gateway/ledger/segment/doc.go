// Package segment holds the form of a ledger's file, of any size, without the
// meaning of its records: frames with checksums, which tell what was damaged from
// what never reached the disk, the Merkle tree over the records, and the signed
// checkpoints of that tree. docs/ledger.md is the specification. The package opens
// no files and has no clock.
package segment
