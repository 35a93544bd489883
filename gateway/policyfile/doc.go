// Package policyfile follows the owner's policy file while a gateway runs. It tells
// the gateway of exactly one thing for each change that lasts:
//
//	loaded    a new policy that has no errors and whose tests pass: it is in force
//	rejected  anything else that is there: the last good policy stays, loudly
//	missing   nothing is there: new work is denied, what runs goes on
//	restored  what is in force is there again
//
// After missing, only a good file restores: a bad one changes nothing.
//
// # What counts
//
// A reading counts when a second one, Config.Settle later, has the same bytes, and
// when nobody has the file open for writing (Linux; file systems that cannot tell
// are believed). So an editor that truncates and then writes, or renames, or swaps a
// link, is seen once, with its result; a file that never comes to rest is rejected
// after ten seconds. A file that is cut off can be a valid, wider policy: a writer
// that closes the file in between and pauses for longer than Config.Settle defeats
// this. Writing a new file and renaming it is always safe.
//
// Changes are noticed through the operating system, in the directory of the file and
// of each link on the way to it, which are followed when they are replaced; and by
// reading the file every Config.Poll, so that whatever was not noticed costs seconds
// only.
//
// # Goroutines and locks
//
// One goroutine reads, judges and tells the gateway; Close waits for it. Watcher.mu
// guards the status alone and is never held during I/O or a call.
package policyfile
