// Package ledger is the one append-only log of what the gateway started and how
// it ended. At-most-once, the frozen grants of invocations, the operation budget
// of leases and the audit are views of the same records.
//
// Reserve takes an operation in memory; Reservation.Start makes it durable, before
// a process is started; Reservation.End writes its one end. Starts that arrive
// together share one write and one fdatasync: whoever comes first writes for all
// that wait, so there are no goroutines and no timers. Ends, refusals and events
// are written at once, so that a killed gateway leaves them behind, and made
// durable by the next start, or by Close.
//
// Each record is a leaf of a Merkle log; Checkpoint signs its size and root, and
// Verify checks a copy of the directory offline. What is not exactly as it was
// written is ErrCorrupt; only a tail that was never acknowledged as durable is cut
// off, once, and recorded. Operations that have no end at Open get StateUnknown.
// A failed write or sync fails the ledger: no further start until it is opened
// again. On a full disk starts are refused and a reserve keeps room for ends.
//
// The log is a chain of segments of 8 MiB. The leader begins the next one between two
// groups, with a snapshot of the one before, so that opening reads little, and prunes
// the oldest as Config says. An invocation whose records are pruned is StateClosed for
// good. AcceptLoss begins again where Open finds the ledger lost or corrupt.
//
// The package decides nothing: identities, frozen grants and audit details are
// opaque bytes to it. One lock guards the views; no I/O happens under it. The file
// format is docs/ledger.md.
package ledger
