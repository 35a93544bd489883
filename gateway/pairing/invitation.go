package pairing

import (
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lendcli/lend/protocol/name"
	"github.com/lendcli/lend/protocol/pair"
)

// Bounds of an invitation.
const (
	// MaxLife is how long one may be open.
	MaxLife = 10 * time.Minute
	// MaxTries is how many wrong proofs burn it.
	MaxTries = 5
)

// ErrOver says that there is nothing to decide, or no more.
var ErrOver = errors.New("the invitation is over, or nobody has used it")

// Phase is where an invitation stands.
type Phase uint8

// The phases. Open to Approved go on; all others are final.
const (
	Open       Phase = iota + 1 // nobody has used it
	Greeted                     // a peer has proved that it has the link
	Shown                       // both ends have the digits
	Approved                    // by the owner, who is about to change the policy
	Paired                      // the policy names the peer
	Refused                     // by the owner
	Expired                     // before a decision
	Burned                      // by wrong proofs
	Lost                        // the peer left before a decision
	Mismatched                  // the peer's nonce did not fit, or it broke the protocol
	Withdrawn                   // the owner's side left before a decision
	Failed                      // approved, but the policy could not be changed
	Unsettled                   // approved, and nobody said whether the policy was changed
)

// String is one word.
func (p Phase) String() string {
	words := [...]string{
		"", "open", "greeted", "shown", "approved", "paired", "refused", "expired", "burned", "lost", "mismatched", "withdrawn", "failed", "unsettled",
	}
	if int(p) < len(words) {
		return words[p]
	}
	return ""
}

// Final tells whether nothing follows.
func (p Phase) Final() bool { return p >= Paired }

// result is what the peer is told of a final phase.
func (p Phase) result() pair.Result {
	switch p {
	case Paired:
		return pair.Paired
	case Refused:
		return pair.Refused
	case Expired:
		return pair.Expired
	case Mismatched:
		return pair.Violation
	case Withdrawn:
		return pair.Withdrawn
	case Failed:
		return pair.Failed
	case Unsettled:
		return pair.Unknown
	case Open, Greeted, Shown, Approved, Burned, Lost:
	}
	return pair.NotInvited
}

// Snapshot is an invitation at one moment.
type Snapshot struct {
	Phase Phase
	// Tries counts wrong proofs, Others the peers that came too late with a right one:
	// they have the link as well.
	Tries, Others int
	// Peer has used the invitation; Called is how it would like to be called, or zero.
	Peer   name.PeerID
	Called name.Label
	// Digits are set from Shown on.
	Digits string
	// Name is what the owner has called the peer, with Paired.
	Name name.Label
}

// Invitation is one. Methods are safe for concurrent use, and none blocks.
type Invitation struct {
	owner   name.PeerID
	secret  pair.Secret
	expires time.Time
	now     func() time.Time

	mu         sync.Mutex // guards all that follows
	at         Snapshot
	commitment pair.Commitment
	nonce      pair.Nonce
	changed    chan struct{} // closed by the next change
}

// NewInvitation opens one of the gateway owner for so long, at most MaxLife, by the
// clock now.
func NewInvitation(owner name.PeerID, life time.Duration, now func() time.Time) (*Invitation, error) {
	if life <= 0 || life > MaxLife {
		return nil, fmt.Errorf("an invitation is open for %s at most", MaxLife)
	}
	i := &Invitation{owner: owner, expires: now().Add(life), now: now, changed: make(chan struct{}), at: Snapshot{Phase: Open}}
	_, _ = rand.Read(i.secret[:]) // it never fails: crypto/rand ends the program instead
	_, _ = rand.Read(i.nonce[:])
	return i, nil
}

// Secret is for the link alone.
func (i *Invitation) Secret() pair.Secret { return i.secret }

// Expires is when it is over if nobody decides.
func (i *Invitation) Expires() time.Time { return i.expires }

// Watch returns how it stands, and a channel that is closed by the next change.
func (i *Invitation) Watch() (Snapshot, <-chan struct{}) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.at, i.changed
}

// Tick looks at the clock. It has to be called now and then.
func (i *Invitation) Tick() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.expireLocked()
}

func (i *Invitation) expireLocked() {
	if i.at.Phase < Approved && !i.now().Before(i.expires) {
		i.moveLocked(Expired)
	}
}

func (i *Invitation) moveLocked(p Phase) {
	i.at.Phase = p
	i.tellLocked()
}

func (i *Invitation) tellLocked() {
	close(i.changed)
	i.changed = make(chan struct{})
}

// Hello takes a peer's first word. The result is zero if the answer is to be sent, and
// why there is none otherwise. Only the first right proof is answered. spec: PAIR-7
func (i *Invitation) Hello(peer name.PeerID, h pair.Hello) (pair.Answer, pair.Result) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.expireLocked()
	if i.at.Phase.Final() {
		return pair.Answer{}, pair.NotInvited
	}
	parties := pair.Parties{Owner: i.owner, Caller: peer}
	if peer == i.owner || !parties.CallerProof(i.secret, h.Commitment, h.Called).Equal(h.Proof) {
		i.wrongLocked()
		return pair.Answer{}, pair.NotInvited
	}
	if i.at.Phase != Open {
		if peer != i.at.Peer {
			i.at.Others++
			i.tellLocked()
		}
		return pair.Answer{}, pair.Used
	}
	i.at.Peer, i.at.Called, i.commitment = peer, h.Called, h.Commitment
	i.moveLocked(Greeted)
	return pair.Answer{Nonce: i.nonce, Proof: parties.OwnerProof(i.secret, h.Commitment, h.Called, i.nonce)}, 0
}

// wrongLocked counts a wrong proof, while nobody has given a right one.
func (i *Invitation) wrongLocked() {
	if i.at.Phase != Open {
		return
	}
	if i.at.Tries++; i.at.Tries >= MaxTries {
		i.moveLocked(Burned)
		return
	}
	i.tellLocked()
}

// Reveal takes the nonce of the peer that was answered; the result is zero, or why there
// are no digits.
func (i *Invitation) Reveal(peer name.PeerID, r pair.Reveal) pair.Result {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.expireLocked()
	if i.at.Phase != Greeted || peer != i.at.Peer {
		return i.at.Phase.result()
	}
	parties := pair.Parties{Owner: i.owner, Caller: peer}
	if !parties.Commit(r.Nonce).Equal(i.commitment) {
		i.moveLocked(Mismatched)
		return pair.Violation
	}
	i.at.Digits = parties.CheckDigits(i.nonce, r.Nonce)
	i.moveLocked(Shown)
	return 0
}

// Leave says that the peer has gone, or broke the protocol.
func (i *Invitation) Leave(peer name.PeerID, violated bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if peer != i.at.Peer || i.at.Phase != Greeted && i.at.Phase != Shown {
		return
	}
	if violated {
		i.moveLocked(Mismatched)
		return
	}
	i.moveLocked(Lost)
}

// Approve is the owner's yes, to digits that were shown: from now on nobody can take the
// invitation back, and Settle has to follow. The error is ErrOver.
func (i *Invitation) Approve() error { return i.decide(Shown, Approved) }

// Refuse is the owner's no.
func (i *Invitation) Refuse() error { return i.decide(Shown, Refused) }

func (i *Invitation) decide(from, to Phase) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.expireLocked()
	if i.at.Phase != from {
		return ErrOver
	}
	i.moveLocked(to)
	return nil
}

// Settle says after Approve under which name the policy has the peer by now; zero: it
// does not have it.
func (i *Invitation) Settle(called name.Label) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case i.at.Phase != Approved:
		return ErrOver
	case called.IsZero():
		i.moveLocked(Failed)
	default:
		i.at.Name = called
		i.moveLocked(Paired)
	}
	return nil
}

// Withdraw says that the owner's side has gone. It does nothing to what is final.
func (i *Invitation) Withdraw() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.expireLocked()
	switch {
	case i.at.Phase == Approved:
		i.moveLocked(Unsettled)
	case !i.at.Phase.Final():
		i.moveLocked(Withdrawn)
	}
}
