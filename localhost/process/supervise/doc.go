// Package supervise is the code of a supervisor: the tiny process below which one
// command runs at a time, and its side of the socket to the gateway.
//
// The life of a supervisor: set up once (subreaper, no new privileges, default
// signals, umask, no core dumps, nothing inherited but the socket), say Hello, then
// again and again take a Start with the child's descriptors, start the child in a
// session of its own, report Started or Failed, report Exited when the child has
// exited and Empty when no descendant lives, and be idle. End of file on the socket
// means that the gateway is gone: kill the tree, leave.
//
// Every descendant of the child is a descendant of the supervisor, because a
// subreaper adopts what loses its parent. The supervisor signals only its own
// children that it has not reaped, and the child's process group while the child
// itself is unreaped (its ID cannot be taken by another then). Killing goes in
// rounds: kill all children, reap them, look again, until the kernel says that
// there are none (ECHILD).
//
// A child with limits is this executable once more, for a moment: a step that joins
// the cgroup, sets the limits and executes. While such a child runs, its tree is
// counted every 25 ms, and killed when it is larger than it may be.
//
// The package is linked into lend-shim, which must start in a millisecond: it
// imports neither net nor fmt nor os/exec. Its own source is the build ID by which
// the gateway knows a lend-shim of the same build: see Sources.
package supervise
