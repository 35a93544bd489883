package revocation

import (
	"time"

	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/protocol/name"
)

// Authority says who may revoke what on one gateway. The zero Authority accepts
// nothing. It may be used from any goroutine if its functions may.
type Authority struct {
	// Gateway is the gateway's own peer ID.
	Gateway name.PeerID
	// Owner is the owner's key, which revokes anything; zero: nobody does.
	Owner name.PeerID
	// Listed tells whether the policy of this moment lists an issuer, which revokes
	// its own leases. nil: it lists none.
	Listed func(name.PeerID) bool
	// PassesOn tells whether the policy of this moment lets a peer pass leases on. It
	// revokes those that it has passed on. nil: nobody does.
	PassesOn func(name.PeerID) bool
	// Now is the wall clock. nil: nothing is accepted.
	Now func() time.Time
}

// Lists tells whether the policy lists a signer as an issuer, or it is the owner.
// Another that Accept accepts has passed leases on.
func (a *Authority) Lists(signer name.PeerID) bool {
	return signer == a.Owner && !a.Owner.IsZero() || a.Listed != nil && a.Listed(signer)
}

// Accept reads a signed revocation and returns what is to be kept of it, and the
// statement that it came from. The first check that fails decides; the error is an
// *Error. The same envelope may come again: it says the same.
// spec: REVOKE-1 to REVOKE-11.
func (a *Authority) Accept(envelope []byte) (Entry, Statement, error) {
	e, s, err := a.accept(envelope)
	if err != nil {
		return Entry{}, Statement{}, err
	}
	return e, s, nil
}

func (a *Authority) accept(envelope []byte) (Entry, Statement, *Error) {
	s, err := open(envelope)
	if err != nil {
		return Entry{}, s, err
	}
	owner := s.Issuer == a.Owner && !a.Owner.IsZero()
	switch {
	case a.Now == nil, !a.Lists(s.Issuer) && (a.PassesOn == nil || !a.PassesOn(s.Issuer)):
		return Entry{}, s, refuse(ReasonUntrusted, name.Quote(s.Issuer.String()))
	case s.Gateway != a.Gateway:
		return Entry{}, s, refuse(ReasonGateway, name.Quote(s.Gateway.String()))
	}
	e := s.Entry
	if !owner {
		if e.Issuer != s.Issuer && !e.Issuer.IsZero() {
			return Entry{}, s, refuse(ReasonNotOwn, name.Quote(e.Issuer.String()))
		}
		e.Issuer = s.Issuer
	}
	switch now := a.Now(); {
	case s.At.After(now.Add(lease.DefaultSkew)):
		return Entry{}, s, refuse(ReasonFuture, s.At.Format(time.RFC3339))
	case s.At.Add(lease.HardCap + lease.DefaultSkew).Before(now):
		return Entry{}, s, refuse(ReasonOld, s.At.Format(time.RFC3339))
	default:
		return e.Kept(now), s, nil
	}
}

// Kept returns the entry as a set keeps it: said at now, and to be forgotten when
// every lease that it can name is dead. That is known only of leases that were
// issued before some moment; what also names later ones is never forgotten.
// spec: REVOKE-11.
func (r Entry) Kept(now time.Time) Entry {
	r.At, r.Until = now.UTC().Truncate(time.Millisecond), time.Time{}
	if !r.IssuedBefore.IsZero() {
		r.Until = r.IssuedBefore.Add(lease.HardCap + lease.MaxSkew)
	}
	return r
}

// Covers tells whether r revokes all that o does, for at least as long.
func (r Entry) Covers(o Entry) bool {
	return (r.Lease.IsZero() || r.Lease == o.Lease) &&
		(r.Invocation.IsZero() || r.Invocation == o.Invocation) &&
		(r.Holder.IsZero() || r.Holder == o.Holder) &&
		(r.Issuer.IsZero() || r.Issuer == o.Issuer) &&
		(r.IssuedBefore.IsZero() || !o.IssuedBefore.IsZero() && !r.IssuedBefore.Before(o.IssuedBefore)) &&
		(r.Until.IsZero() || !o.Until.IsZero() && !r.Until.Before(o.Until))
}
