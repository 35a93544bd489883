// Package remote fetches one pinned archive over https from the hosts that its release
// names, and from no others.
//
// Every request, the first and each redirect, is checked by itself: https, the standard
// port, no user, a host that is exactly one of the list. Each name is resolved here, all
// of its addresses must be public, and the connection is made to one of these very
// addresses, which is looked at once more when the socket is dialled: a name that
// resolves to another address a moment later leads nowhere else. No proxy is used,
// whatever the environment says, since nobody could tell what it connects to. Bytes come
// without any encoding, in exactly the length that the release pins; their digest is the
// business of the cache that they are written to (package download).
package remote
