// Package revocations keeps what was revoked on one gateway: a set in memory that
// admission asks, and the file that it came from, which is on disk before an
// addition is answered. Beside it lies the mark of a lockdown, while which nothing
// counts.
//
//	Create  the empty file, when a machine is initialised
//	Open    what there is
//	Add     the owner's word; Accept that of a signed envelope
//	Lock    and Unlock: the lockdown
//
// Whatever cannot be read denies everything (Locked says why): a file that is
// missing, damaged, or not what was written, at the start, at a change, and when
// Refresh looks. A Store does not write what it does not understand; Renew begins
// anew, and revokes all that was issued until then.
//
// One process at a time may change the file; the mark may be set and removed by
// another, which Refresh notices. The rules are those of docs/revocation.md §4, §5.
package revocations
