// Package stdio reads and writes the standard streams of another process, whose
// descriptors were handed over.
//
// The descriptors share their open files with the caller and its neighbours, so their
// modes are not touched. Each read or write first waits (poll) until it will not block,
// together with a pipe of our own: so it can be interrupted, and nothing is read from
// the caller's input that nobody wants any more. On Linux from 6.5 on a read or write of a
// pipe or a socket then does what can be done at once (RWF_NOWAIT). Elsewhere a write is no
// larger than what is sure to fit, and another reader or writer of the same pipe that comes
// in between can make one call block until it moves on.
package stdio
