// Package protocol is the wire of lend: frames, bounds, reason codes and the
// pure state table of a run stream. docs/protocol.md is its specification; rules
// are cited as "spec: START-2".
//
// What crosses machines: an operation ID, a lease, the public names of a
// Connector and of a command, arguments, and the bytes of three streams. What
// never does: a path, an environment, a working directory, a digest, a secret.
//
// A Reader turns the bytes of a stream into frames. It is bounded before it
// allocates, refuses every frame that is not in its canonical encoding, out of
// order or at a wrong offset, and gives all names as checked values. What it
// accepts encodes to the same bytes again. A Writer sends each frame in one
// Write. The data path copies nothing: read into buf[DataHeaderMax:], and
// Writer.WriteData puts the header in front.
//
// The package has no clock, no network and no logger: deadlines and streams
// belong to the caller. Values may be shared once they are not changed any more;
// a Reader belongs to one goroutine, a Writer may be shared by several.
package protocol
