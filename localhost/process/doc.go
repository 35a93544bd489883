// Package process starts the commands of Connectors on this machine and sees to
// it that none of their descendants outlives its operation. It is the only
// package that starts programs.
//
// On Linux each operation runs below a supervisor: a tiny process of its own
// (package supervise) that is a subreaper, serves one operation at a time and goes
// back to a small warm pool only when its subtree is empty. Attribution is thereby
// structural: whatever a command does (setsid, a double fork, an empty
// environment), its processes are descendants of that supervisor and of no other.
// One socket pair is request, report and lifeline at once: when this process dies,
// each supervisor kills its tree and leaves; when a supervisor dies, its tree is
// adopted by this process, which is a subreaper too, and is killed here. Elsewhere
// one operation is one direct child, in a process group (macOS) or a job object
// (Windows).
//
// The program that uses a Transport must call Main first thing in main (tests: in
// TestMain), because a supervisor is either lend-shim of the same build, found
// beside the executable, or this executable started again.
//
// The child gets nothing that the Spec does not name: a complete environment, three
// descriptors, a working directory, its own session, umask 077, no core dumps, 1024
// open files (soft), no new privileges, default signal dispositions. Limits of
// processes and memory hold from its first instruction on (ADR 80); a delegated
// cgroup (package cgroup) bounds and ends an operation as a whole.
//
// Lock order: Transport.mu, pool.mu, operation.mu; none is held while a system call
// may block. Signals go only to processes that are unreaped children of the
// signaller, so that a reused process ID is never hit. See docs/adr/0050 to 0054.
package process
