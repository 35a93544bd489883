// Package hostile attacks a gateway that runs in a process of its own: peers that
// flood, trickle, lie and race, named ones and strangers, on TCP and QUIC, while
// an honest peer is served within a bound. What the attacks used is given back
// afterwards: goroutines, descriptors, memory and the peers' slots.
//
// The gateway is the real node with its ledger and policy; its Connector is a fake
// of the tests, whose processes cost nothing, so that what is measured is the
// gateway's own.
package hostile
