// Package ownersocket makes unix sockets that only their owner can use: of mode 0600,
// in a directory of the owner's own with mode 0700.
//
//	Listen  makes one; one that is alive is never replaced
//	Check   looks at one before it is connected to
//	PeerOf  tells who is at the other end of a connection
//
// Where the system tells no peer credentials there are no such sockets.
package ownersocket
