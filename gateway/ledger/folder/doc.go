// Package folder is the directory of a ledger: its names, who may read it, the keys
// beside the records, the reserve for a full disk, and the lock that keeps a second
// process out. A directory that this package made is either a whole ledger, or one
// that is made again.
package folder
