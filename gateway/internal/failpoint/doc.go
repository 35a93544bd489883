// Package failpoint lets a test kill the gateway at a point that it names. Only a
// build with the tag failpoint can: in all others Hit is empty.
//
// The points are, in the order of an operation's life: "reserved" (in memory),
// "start-written" and "start-synced" (the start is in the ledger's file, and durable;
// the admission does not know yet), "recorded" (it does, nothing runs yet), "started"
// (the process runs, the caller was told nothing), "ending" (the processes are gone,
// the end is not recorded), "end-written" (it is in the file, which nobody knows),
// "ended" (the caller was not told), "told" (the Exit was written to the stream) and
// "acknowledged" (the caller has it, and the gateway does not know what to forget).
package failpoint
