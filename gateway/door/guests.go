package door

import (
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/lendcli/lend/policy"
)

// Guests are peers that the policy does not admit, while the owner has invited one: they
// come in for pairing alone.

// Bounds of guests.
const (
	// MaxGuests is how many may be here at once. One that has not shown the invitation
	// may stay for twice the Grace.
	MaxGuests = 8

	connsPerGuest   = 4 // a race of transports makes two
	streamsPerGuest = 8 // what libp2p itself opens, and a few
	guestMemory     = streamsPerGuest*streamMemory + 4<<20
)

// Invite lets guests in, or no more. Those who are here then are unwelcome.
func (d *Door) Invite(open bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.invites = open
	for _, st := range d.known {
		st.kept = false
	}
}

// Keep says that the peer has shown the invitation: it may stay until Invite(false).
func (d *Door) Keep(p peer.ID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if st := d.known[p]; st != nil && d.invites {
		st.kept = true
		st.stopTimer()
	}
}

// Welcome tells whether the policy admits the peer, or did when it connected. All
// that is open to another is pairing.
func (d *Door) Welcome(p peer.ID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !d.isGuestLocked(p)
}

// guest is what the transport asks.
func (d *Door) guest(p peer.ID) bool { return !d.Welcome(p) }

func (d *Door) isGuestLocked(p peer.ID) bool {
	n, _ := PeerName(p) // a key without a name is the zero name, which no policy admits
	st := d.known[p]
	return d.policy.Admission(n) == policy.AdmitNone && (st == nil || !st.welcome)
}

// guestLocked tells whether a peer may come in that the policy does not admit.
func (d *Door) guestLocked(p peer.ID) bool {
	if !d.invites {
		return false
	}
	if st := d.known[p]; st != nil && st.conns > 0 {
		return true
	}
	return d.guestsLocked() < MaxGuests
}

func (d *Door) guestsLocked() (n int) {
	for id, st := range d.known {
		if st.conns > 0 && d.isGuestLocked(id) {
			n++
		}
	}
	return n
}

// graceLocked is how long a guest that has just connected may stay: not at all if
// the invitation is over by now, or others were quicker.
func (d *Door) graceLocked() time.Duration {
	if !d.invites || d.guestsLocked() > MaxGuests {
		return 0
	}
	return 2 * d.Grace
}
