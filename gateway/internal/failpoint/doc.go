// Package failpoint lets a test kill the gateway at a point that it names. Only a
// build with the tag failpoint can: in all others Hit is empty.
//
// The points are, in the order of an operation's life: "reserved" (in memory),
// "recorded" (the start is durable, nothing runs yet), "started" (the process runs,
// the caller was told nothing), "ending" (the processes are gone, the end is not
// recorded), "ended" (it is, the caller was not told).
package failpoint
