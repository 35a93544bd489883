// Package protocol is the wire of lend: frames, bounds, codes and the pure state
// table of a run stream. See docs/protocol.md.
package protocol
