package door

import (
	"cmp"
	"slices"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/lendcli/lend/policy"
	"github.com/lendcli/lend/protocol"
	"github.com/lendcli/lend/protocol/name"
)

// Each denial costs a peer some time; what it owes wears off as time passes. Once
// it owes as much as the policy's number of denials costs, it is refused for as
// long, with the rest as retry-after, and each further penalty is reached sooner
// and lasts longer.
const (
	denialCost    = 5 * time.Second // doubled with each penalty that was in force
	penaltyCap    = 10 * time.Minute
	penaltyMemory = 10 * time.Minute // without a denial, until all is forgotten
	poolCap       = time.Minute      // strangers have no names to be told apart by
)

// debt is what one peer owes, or the pool of strangers.
type debt struct {
	owed  time.Time // it owes until then
	until time.Time // it is refused until then
	times int       // penalties that were in force
	last  time.Time // of the denials
}

// deny adds a denial at now. What comes in while a penalty is in force was under
// way already, and adds nothing: who waits as long as was said is let in.
func (d *debt) deny(now time.Time, floor, most time.Duration) {
	if now.Sub(later(d.last, d.until)) > penaltyMemory {
		*d = debt{}
	}
	d.last = now
	if d.rest(now) > 0 {
		return
	}
	d.owed = later(now, d.owed).Add(min(denialCost<<min(d.times, 10), most))
	// What wore off between the denials of a quick row does not count.
	if owes := d.owed.Sub(now); owes > floor-denialCost {
		d.until, d.owed = now.Add(min(max(owes, floor), most)), time.Time{}
		d.times++
	}
}

// rest is for how long it is refused, 0 if it is not.
func (d *debt) rest(now time.Time) time.Duration { return max(0, d.until.Sub(now)) }

// forgotten tells whether nothing of it matters any more.
func (d *debt) forgotten(now time.Time) bool {
	return d.rest(now) == 0 && !now.Before(d.owed) && (d.times == 0 || now.Sub(later(d.last, d.until)) > penaltyMemory)
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// Deny says that the peer showed a lease that is worth nothing here, broke the
// protocol, or let a stream wait. Nobody else pays for it, wherever they connect
// from; strangers, whose names cost nothing, pay together as well, by the time for
// which only one of them now and then is let in.
func (d *Door) Deny(p peer.ID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n, ok := PeerName(p)
	if !ok {
		return
	}
	now, st := d.now(), d.getLocked(p)
	floor := denialCost * time.Duration(LimitsOf(d.policy).Denials)
	st.debt.deny(now, floor, penaltyCap)
	if st.proved || d.policy.Admission(n) == policy.AdmitNamed {
		st.remembered = true
		return
	}
	d.pool.deny(now, floor, poolCap)
	d.pool.times = 0 // it does not grow
}

// Penalty is what the peer is told if it may start nothing now, nil if it may.
func (d *Door) Penalty(p peer.ID) *protocol.Refusal {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.known[p].penalty(d.now())
}

// Barred is Penalty for a peer that has nothing running: its streams need not be
// read. Who has may follow and cancel it.
func (d *Door) Barred(p peer.ID) *protocol.Refusal {
	d.mu.Lock()
	defer d.mu.Unlock()
	if st := d.known[p]; st != nil && st.running == 0 {
		return st.penalty(d.now())
	}
	return nil
}

func (st *peerState) penalty(now time.Time) *protocol.Refusal {
	if st == nil || st.debt.rest(now) == 0 {
		return nil
	}
	return &protocol.Refusal{
		Code: protocol.CodeRateLimited, Public: "too many requests of yours were denied",
		RetryAfter: roundUp(st.debt.rest(now)),
	}
}

// roundUp makes whole milliseconds of d, which is what a retry-after holds: not a
// moment too early.
func roundUp(d time.Duration) time.Duration {
	if whole := d.Truncate(time.Millisecond); whole != d {
		return whole + time.Millisecond
	}
	return d
}

// Penalized is one peer that is refused for a while.
type Penalized struct {
	Peer name.PeerID // zero: strangers that are not here yet
	Rest time.Duration
	// Times counts the penalties, this one included; 0 for the strangers.
	Times int
}

// Penalties returns those in force: strangers first, then by peer.
func (d *Door) Penalties() (out []Penalized) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.now()
	if rest := d.pool.rest(now); rest > 0 {
		out = append(out, Penalized{Rest: rest})
	}
	for id, st := range d.known {
		if rest := st.debt.rest(now); rest > 0 {
			n, _ := PeerName(id) // Deny has looked
			out = append(out, Penalized{n, rest, st.debt.times})
		}
	}
	slices.SortFunc(out, func(a, b Penalized) int { return cmp.Compare(a.Peer.String(), b.Peer.String()) })
	return out
}
