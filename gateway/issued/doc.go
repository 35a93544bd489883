// Package issued remembers which leases were issued on a machine, for its owner to
// list and to revoke: a private file for each, with what the lease says, never the
// lease itself nor the values that it pins. A file is deleted a month after its
// lease is over.
//
// Nothing decides by it: it may be lost, or deleted.
package issued
