// Package artifact turns a directory or archive into a private read-only tree that
// we wrote ourselves, and later tells whether it is still that tree.
//
//	Import       directory, .zip or .tar.gz → new tree, under Limits
//	ImportFile   one executable → new tree
//	Open         tree → Snapshot: hashes every file
//	Snapshot.Verify   before each start: identities, and a hash only where one differs
//	Remove       takes a tree away
//
// Refused on import: symbolic links, hard links in archives, devices, absolute and
// ".." paths, NUL, backslashes, names that some system takes for another name
// (letter case, Unicode form, devices, trailing dots), duplicates, and whatever
// exceeds the Limits. Nothing of a source is ever linked, only copied; modes are
// 0400, or 0500 for executables and directories. Everything is on disk before
// Import returns; the caller then renames the parent into place.
//
// Text file busy: a child that this process forks between the open and the close
// of a new executable holds its write descriptor until it has exec'd, and Linux
// refuses to run a file that is open for writing. So syscall.ForkLock is held for
// reading while a file is written, and forks of this process wait for that one file.
// (To take the lock once after the close is not enough: vfork returns before the
// kernel closes what is close-on-exec.)
//
// The tree digest is SHA-256 over every entry in lexical order: path, NUL, then
// "dir" NUL, or "file" NUL size NUL content. See docs/localhost.md.
package artifact
