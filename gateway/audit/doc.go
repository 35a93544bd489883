// Package audit shows the records of a ledger to its owner, and keeps its checkpoints
// in a second place.
//
//	View       reads the records of a directory: the newest ones, all, or what comes
//	Record     is one record with words for everything, for JSON and for tables
//	Verify     checks a directory against what was kept elsewhere
//	Keeper     signs checkpoints while the gateway runs, and has them kept
//
// A View needs no gateway, no keys and no lock: the directory may be in use, or a
// copy. It reads only as many segments as the question needs. All text in a Record
// is printable ASCII, whatever the files hold. The Keeper never makes a start wait:
// each place has a goroutine of its own and at most one checkpoint that waits for
// it, the newest. docs/audit.md has the fields, and what a checkpoint proves.
package audit
