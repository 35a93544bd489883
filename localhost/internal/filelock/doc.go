// Package filelock locks a file between processes, and between goroutines of one:
// the lock belongs to the open file, so two locks of one process exclude each other
// too, and the system lets go when the last holder dies.
//
//	Exclusive    waits until it has the lock, or ctx is done
//	Try, TryShared   do not wait
//
// A lock is advisory, and its file stays behind when it is let go: removing it
// would let two processes hold locks of one name. The package imports nothing of
// ours; its functions may be called from any goroutine.
package filelock
