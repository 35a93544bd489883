// Package filelock locks a file between processes, and between goroutines of one:
// the lock belongs to the open file, so two locks of one process exclude each other
// too, and the system lets go when the last holder dies.
//
//	Exclusive    waits until it has the lock, or ctx is done
//	Try, TryShared   do not wait
//
// A lock is advisory, and its file stays behind when it is let go. Only Remove takes it
// away, of an exclusive lock while it is held: whoever gets the lock of a file that is
// not at its path any more lets go of it and tries again, so that no two hold locks of
// one name. An empty directory in the place of a file gives way; another is a
// *BlockedError. The package imports nothing of ours; its functions may be called from any
// goroutine.
package filelock
