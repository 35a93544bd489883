// Package socket is the broker's socket: a unix socket of mode 0600 in a directory of
// mode 0700, for the shims and the lend run of one user.
//
//	Listen    serves a broker.Broker until Close, which waits for every caller
//	Ask, Run  are the other end
//
// Both ends look who the other is: the broker serves its own user and root, a caller
// hands its streams to a broker of its own user alone, behind a socket that is that
// user's. Where the system tells no peer credentials the socket is refused. Frames are
// those of package wire; sizes, times and the number of callers are bounded.
package socket
