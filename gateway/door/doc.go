// Package door is the way in: the libp2p host that peers dial, who may connect to
// it by the policy's word, and how much each peer may hold there.
//
// A peer that the policy does not admit is disconnected after the handshake,
// without a frame. Where some issuer may name holders that the policy does not
// know, strangers get a small pool of their own for a few seconds; who shows a
// valid lease (Proved) may stay. The limits of the transport are derived from the
// policy's and lie above them, so that admission answers first, with a code.
//
// limits.go has every number. Who keeps being denied is refused for a while, and
// told for how long (penalty.go); starts that wait take turns (permits.go).
//
// One lock guards all counts; nothing is called or logged under it.
package door
