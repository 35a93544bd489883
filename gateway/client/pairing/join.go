package pairing

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/lendcli/lend/gateway/client/internal/dial"
	"github.com/lendcli/lend/protocol/name"
	"github.com/lendcli/lend/protocol/pair"
)

// Errors of Join. With each but ErrUnknown nothing has changed on the owner's machine.
var (
	// ErrNotInvited: the invitation has expired, was withdrawn or burned, or there is
	// none: the owner's machine tells nobody which.
	ErrNotInvited = errors.New("the owner's machine has no such invitation, or no more: ask for a new one")
	// ErrUsed: somebody else has used the link. The owner should know.
	ErrUsed = errors.New("the invitation was used already: if it was not you, tell the owner")
	// ErrRefused: by the owner.
	ErrRefused = errors.New("the owner refused")
	// ErrExpired: nobody decided in time.
	ErrExpired = errors.New("the invitation expired before the owner decided")
	// ErrWithdrawn: the owner's command ended.
	ErrWithdrawn = errors.New("the owner withdrew the invitation before a decision")
	// ErrFailed: the owner approved, but the policy could not be changed.
	ErrFailed = errors.New("the owner approved, but the policy could not be changed: ask for a new invitation")
	// ErrUnknown: the link was lost, or the owner's side ended, after the digits were
	// shown: the owner may have approved.
	ErrUnknown = errors.New("it is not known whether the owner approved: ask the owner")
	// ErrImpostor: what answered has the owner's key, but not the link's secret.
	ErrImpostor = errors.New("the other end does not have this invitation")
	// ErrUnreachable: nobody answered at the addresses of the link.
	ErrUnreachable = errors.New("the owner's machine cannot be reached at the addresses of the link")
)

const (
	dialTimeout   = 15 * time.Second
	answerTimeout = 15 * time.Second
	// decisionTimeout is longer than any invitation.
	decisionTimeout = 11 * time.Minute
)

// Config says who joins.
type Config struct {
	// Key is the caller's identity: an Ed25519 private key of 64 bytes.
	Key ed25519.PrivateKey
	// Link is the invitation. It is spent as soon as the owner's machine has answered.
	Link pair.Link
	// Called is how the caller would like to be called, or zero.
	Called name.Label
	// Shown is called with the check digits, once, before the wait for the decision.
	Shown func(digits string)
}

// Join uses an invitation and waits for the decision, at most until ctx is done. It
// returns the owner's name for this caller.
func Join(ctx context.Context, c Config) (name.Label, error) {
	h, err := newHost(c.Key)
	if err != nil {
		return name.Label{}, fmt.Errorf("pair: %w", err)
	}
	defer func() { _ = h.Close() }()
	j := joining{config: c}
	j.parties.Caller, _ = name.ParsePeerID(h.ID().String()) // an Ed25519 key has a name
	j.parties.Owner = c.Link.Owner
	if j.parties.Owner == j.parties.Caller {
		return name.Label{}, errors.New("pair: the link is this machine's own")
	}
	owner, _ := peer.Decode(c.Link.Owner.String()) // likewise
	d := dial.Dialer{Host: h, Timeout: dialTimeout}
	s, err := d.Confirmed(ctx, peer.AddrInfo{ID: owner, Addrs: c.Link.Addresses}, pair.ID)
	if err != nil {
		return name.Label{}, unopened(ctx, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = s.Reset() })
	defer stop()
	called, err := j.exchange(s)
	if err != nil {
		_ = s.Reset()
		if ctx.Err() != nil {
			err = errors.Join(context.Cause(ctx), err)
		}
		return name.Label{}, err
	}
	_ = s.Close()
	return called, nil
}

func newHost(key ed25519.PrivateKey) (host.Host, error) {
	id, err := crypto.UnmarshalEd25519PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return dial.NewHost(id)
}

// unopened is why no stream could be opened.
func unopened(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, dial.ErrNotGateway), errors.Is(err, dial.ErrNotAdmitted), errors.Is(err, dial.ErrLost):
		return ErrNotInvited
	}
	return fmt.Errorf("%w: %w", ErrUnreachable, err)
}

// stream is what an exchange needs of one.
type stream interface {
	io.ReadWriter
	SetDeadline(at time.Time) error
}

type joining struct {
	config  Config
	parties pair.Parties
}

func (j *joining) exchange(s stream) (name.Label, error) {
	_ = s.SetDeadline(time.Now().Add(answerTimeout))
	secret, called := j.config.Link.Secret, j.config.Called
	var mine pair.Nonce
	_, _ = rand.Read(mine[:]) // it never fails: crypto/rand ends the program instead
	commitment := j.parties.Commit(mine)
	hello := pair.Hello{Commitment: commitment, Proof: j.parties.CallerProof(secret, commitment, called), Called: called}
	if err := pair.Write(s, hello); err != nil {
		return name.Label{}, lost(err)
	}
	f, err := pair.Read(s)
	if err != nil {
		return name.Label{}, lost(err)
	}
	answer, ok := f.(pair.Answer)
	if !ok {
		return ended(f, false)
	}
	if !j.parties.OwnerProof(secret, commitment, called, answer.Nonce).Equal(answer.Proof) {
		return name.Label{}, ErrImpostor
	}
	if err := pair.Write(s, pair.Reveal{Nonce: mine}); err != nil {
		return name.Label{}, lost(err)
	}
	j.config.Shown(j.parties.CheckDigits(answer.Nonce, mine))
	_ = s.SetDeadline(time.Now().Add(decisionTimeout))
	f, _ = pair.Read(s) // nothing is no Outcome
	return ended(f, true)
}

// lost is a link that was lost, or broke the protocol, before there were digits: nobody
// can have approved.
func lost(err error) error {
	if errors.Is(err, pair.ErrViolation) {
		return fmt.Errorf("pair: %w", err)
	}
	return errors.New("the link to the owner's machine was lost before there were check digits: ask for a new invitation")
}

// ended is what an Outcome says. Nobody is paired without digits; once they were shown the
// owner may have decided, whatever comes.
func ended(f pair.Frame, shown bool) (name.Label, error) {
	out, ok := f.(pair.Outcome)
	switch {
	case !ok && shown:
		return name.Label{}, ErrUnknown
	case !ok, out.Result == pair.Paired && !shown:
		return name.Label{}, fmt.Errorf("pair: %w", pair.ErrViolation)
	}
	switch out.Result {
	case pair.Paired:
		return out.Name, nil
	case pair.Refused:
		return name.Label{}, ErrRefused
	case pair.Expired:
		return name.Label{}, ErrExpired
	case pair.Used:
		return name.Label{}, ErrUsed
	case pair.Withdrawn:
		return name.Label{}, ErrWithdrawn
	case pair.Failed:
		return name.Label{}, ErrFailed
	case pair.Unknown:
		return name.Label{}, ErrUnknown
	case pair.Violation:
		return name.Label{}, fmt.Errorf("pair: %w, says the owner's machine", pair.ErrViolation)
	case pair.NotInvited:
	}
	return name.Label{}, ErrNotInvited
}
