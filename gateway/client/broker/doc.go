// Package broker keeps a caller's leases and warm connections, so that a command that
// is lent starts as fast as one that is here.
//
//	New       makes a Broker: one libp2p host, which only dials
//	Accept    takes a lease in, and returns the handle of its invocation's session
//	Call      runs a command for a caller of this machine; package socket serves it
//
// A session is what one invocation may use: the leases of that invocation and nothing
// else. Its handle is random, is not on the disk, and selects nothing beyond it. The
// session ends with the last of its leases, when it is closed, or with the Broker; what
// runs in it is cancelled then. A lease never leaves the Broker.
//
// A command line of a CLI becomes a public command by what the gateway's catalogue says
// of fixed arguments (package native): exactly one match, or nothing runs. Which authority it runs under
// is the caller's word, "owner" or "caller"; there is no other and no fallback.
//
// The connection to a gateway is dialed when a lease for it is accepted and again when
// it is lost, at all addresses that any of the leases knows, over QUIC and TCP.
//
// Lock order: Broker.mu, then session.mu; neither is held during I/O. See docs/broker.md.
package broker
