// Package depot is the versions on disk: which directory of a Connector or runtime
// is current, transactions that make another one current, and the sweep of what
// nobody uses.
//
//	Stage → fill → Slot.Publish    the previous one holds until a receipt is renamed
//	Slot.Use                       a lock that keeps a directory on disk
//	Slot.Supersede, Slot.Sweep     another version is current: it goes when nobody uses it
//	Slot.Retire                    nothing is current any more
//
// Directories have names that are never used twice. One that is not current goes as
// soon as nobody holds its lock, at Publish, Retire or Open. Locks are file locks,
// so they exclude other processes, and die with them. Lock order: the lock of one
// Connector, the lock of one runtime, the lock of all staging.
//
// It knows nothing of what a directory holds; a receipt is never an authenticity
// root. See docs/localhost.md.
package depot
