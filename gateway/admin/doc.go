// Package admin is the owner's socket: a unix socket of mode 0600 in a directory
// of mode 0700, on which the command line asks a running gateway for its status
// and tells it that the installed Connectors have changed.
//
//	Listen   makes the socket; a live one of another gateway is never replaced
//	Server   serves a Backend until Close, which waits for every request
//	Client   is the other end
//
// The peer of each connection must be the same user or root (SO_PEERCRED), and
// must not descend from the gateway's own process: a command that runs for a peer
// cannot reach the socket, whatever its user. Where the system tells no peer
// credentials the socket is refused. The messages are JSON over HTTP/1.1; sizes,
// times and the number of connections are bounded. Nothing secret passes here but the
// link of an invitation.
package admin
