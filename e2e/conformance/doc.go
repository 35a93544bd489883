// Package conformance tries whether another language can speak with a gateway: a caller
// in JavaScript, on js-libp2p, that was written from docs/protocol.md and docs/lease.md
// alone. It reads the vectors of the protocol, and runs, streams, cancels and attaches
// against a real gateway over TCP and QUIC.
//
//	codec.js    messages, both ways, and the rules about one of them
//	stream.js   lengths, order and counts of one direction of a stream
//	lease.js    lease files and identities
//	client.js   the caller
//	vectors.js  the vectors and transcripts
//	main.js     what is tried
//	node20.js   what Node 20 lacks
//
// docs/other-languages.md leads through them. Needs LEND_TEST_FULL=1, Node and npm.
package conformance
