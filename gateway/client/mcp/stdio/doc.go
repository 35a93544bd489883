// Package stdio is the agents' protocol on a pair of streams: one JSON-RPC message on each
// line, as MCP has it.
//
//	Transport  connects one client to a server of the SDK
//	Outlet     is what it writes to, if a client that does not read is not waited for
//
// A line that cannot be read is answered and left behind; the next one is read as if it
// had not been there: no JSON (-32700), no message, an ID that would not come back as it
// was said, or one that is in use (-32600), and a line over the bound (-32600), of which
// no more than the bound is ever held. Batches are what they are in the versions of the
// protocol that have them, and refused in the others.
package stdio
