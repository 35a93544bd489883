// Package wire is what a shim, or lend, and the broker of the same machine say to
// each other over a unix socket: values and bytes, no I/O.
//
// Each frame is a header of 6 bytes and a payload:
//
//	version (1)  kind (1)  length of the payload, big-endian (4)  payload
//
// The first frame of a connection says what it is for: a Call of a shim, a Run of
// lend, or a Control request in JSON. The three descriptors of a Call or a Run, for
// standard input, output and error, travel with its header (SCM_RIGHTS). Then the
// caller may send Cancels, of no payload, and the broker answers with one Exit, or
// with one Answer to a Control, and closes. The end of the connection without an Exit
// says nothing about the command.
//
// The payload of a Call, a Run and an Exit is a row of fields in ascending order, each
// a tag (1), a length, big-endian (4), and that many bytes; only arguments repeat. A
// reader refuses what it does not know, and every length before it allocates for it.
//
// The package is linked into lend-shim, which starts in a millisecond: it imports
// neither net nor fmt nor encoding/json.
package wire
