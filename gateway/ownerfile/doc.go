// Package ownerfile reads and makes the files on which an owner's authority
// rests: key files, which nobody else may read, and policy files, which nobody
// else may write.
//
//	Read      a regular file within a bound, checked on the open descriptor
//	Follow    links on the way to it that only the owner can have made
//	Create    a new private file, complete and durable or not there at all
//	Replace   the same in place of an old one
//	Rewrite   the same in place of what was read, and only of that, with its mode kept
//	LoadKey   an Ed25519 key from a private file
//	CreateKey a fresh one
//
// A symbolic link that was not followed, a directory, a device, another owner, a directory that others
// may write (unless its sticky bit is set): all are refused with the reason and
// the command that mends it. On Windows the file's access list is what counts.
package ownerfile
