// Package snapshot is the index of one finished segment of a ledger: what the views
// keep of its records, so that opening need not read them again. A snapshot is a
// cache. It has a keyed checksum and says which segment of which ledger it is of, up
// to which Merkle root; whoever finds it missing, damaged or of another segment reads
// the records instead. The package has no files and no clock.
package snapshot
