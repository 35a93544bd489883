// Package pairing is the owner's side of pairing: one invitation at a time, from the link
// to the owner's decision.
//
//	Invitation  the state machine: it has a clock, and neither network nor terminal
//	Desk        opens one at a gateway, and answers the streams of those who come
//
// An invitation is used once: the first peer that proves to have the link has it, whatever
// follows. It is over after ten minutes, five wrong proofs, a decision, or when its owner
// or its guest leaves; nothing of it is kept. Nobody is named in the policy by this
// package: that is for whoever decides.
package pairing
