package gateway

import (
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/lendcli/lend/gateway/ledger"
	"github.com/lendcli/lend/gateway/operation"
	"github.com/lendcli/lend/gateway/revocations"
	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/lease/revocation"
	"github.com/lendcli/lend/protocol"
	"github.com/lendcli/lend/protocol/name"
)

// Registry keeps what was revoked while the gateway runs; *revocations.Store is one.
type Registry interface {
	lease.RevocationChecker
	// Accept keeps what a signed envelope says, before it returns, and tells whether
	// that is new.
	Accept(a *revocation.Authority, envelope []byte) (by name.PeerID, e revocation.Entry, added bool, err error)
	// Locked says why everything is revoked, nil if it is not: a
	// *revocations.LockdownError or another error.
	Locked() error
	// Refresh notices what has changed on disk. It is called twice a second.
	Refresh()
}

// revoking is what a Node knows of its Registry.
type revoking struct {
	registry Registry // nil: Config.Revocations is none

	mu              sync.Mutex // guards both: what was recorded last
	lockdown, blind bool
}

func (r *revoking) locked() error {
	if r.registry == nil {
		return nil
	}
	return r.registry.Locked()
}

// revoke keeps what a peer brings, whoever signed it, and ends what runs under it.
func (n *Node) revoke(q *protocol.RevokeRequest) (protocol.ControlReply, error) {
	if n.revoking.registry == nil {
		return nil, &protocol.Refusal{Code: protocol.CodeUnsupported}
	}
	authority := &revocation.Authority{
		Gateway: n.self, Owner: n.cfg.Owner, Now: n.cfg.Now,
		Listed:   func(id name.PeerID) bool { _, ok := n.policy.Load().Issuer(id); return ok },
		PassesOn: func(id name.PeerID) bool { return n.policy.Load().PassesOn(id) },
	}
	stopped, err := n.Revoke(func() (string, []revocation.Entry, error) {
		by, e, added, err := n.revoking.registry.Accept(authority, q.Envelope)
		if err != nil || !added {
			return "", nil, err
		}
		return by.String(), []revocation.Entry{e}, nil
	})
	if err != nil {
		return nil, err
	}
	return &protocol.RevokeReply{Stopped: uint32(stopped)}, nil
}

// Now is the gateway's time, which never goes back.
func (n *Node) Now() time.Time { return n.cfg.Now() }

// Revoke makes a change of the Registry, ends what it revokes, by a lockdown too, and
// then records what was added to it, and by whom ("owner", or a peer ID), as change
// says. It returns how many operations ran that the change has revoked; they end
// within a second. The error is that of change, which may count all the same.
func (n *Node) Revoke(change func() (by string, added []revocation.Entry, err error)) (stopped int, err error) {
	var good []*entry
	for _, e := range n.live.all() {
		if e.running() && !e.verified.Revoked(n.verifier.Revoked) {
			good = append(good, e)
		}
	}
	by, added, err := change()
	n.recheck(false)
	for _, e := range good {
		if e.verified.Revoked(n.verifier.Revoked) {
			stopped++
		}
	}
	for i := range added {
		facts := revocations.Facts(&added[i])
		facts["by"] = by
		n.Record(ledger.Event{Name: "revocation.added", Facts: facts})
		n.cfg.Log.Info().Str("by", by).Int("stopped", stopped).Msg("revoked")
	}
	n.noteLocked()
	return stopped, err
}

// refresh looks at what another process may have changed.
func (r *revoking) refresh() {
	if r.registry != nil {
		r.registry.Refresh()
	}
}

// noteLocked records that everything is revoked, and that it no longer is.
func (n *Node) noteLocked() {
	why := n.revoking.locked()
	for _, e := range n.revoking.news(why) {
		if why != nil {
			n.cfg.Log.Error().Err(why).Msg("everything is denied")
		} else {
			n.cfg.Log.Warn().Str("event", e.Name).Msg("not everything is denied any more")
		}
		n.Record(e)
	}
}

// news are the events that why makes, after those that were made before.
func (r *revoking) news(why error) (out []ledger.Event) {
	var lockdown *revocations.LockdownError
	locked := errors.As(why, &lockdown)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case locked && !r.lockdown:
		out = append(out, ledger.Event{Name: "lockdown.on", Facts: map[string]string{"why": lockdown.Why}})
	case !locked && r.lockdown:
		out = append(out, ledger.Event{Name: "lockdown.off"})
	}
	r.lockdown = locked
	if blind := why != nil; !locked && blind != r.blind { // a lockdown hides whether it is
		r.blind = blind
		e := ledger.Event{Name: "recovered", Facts: map[string]string{"what": "revocations"}}
		if blind {
			e.Name = "degraded"
		}
		out = append(out, e)
	}
	return out
}

// whyRevoked is what the peer is told of a lease that is revoked: that it is, or
// that all are.
func (n *Node) whyRevoked() error {
	if why := n.revoking.locked(); why != nil {
		return &protocol.Refusal{Code: protocol.CodeGatewayLocked, Cause: why}
	}
	return operation.CauseRevoked
}

// causeRevoked is the same for what runs.
func (n *Node) causeRevoked() operation.Cause {
	var lockdown *revocations.LockdownError
	if errors.As(n.revoking.locked(), &lockdown) {
		return operation.CauseOwner
	}
	return operation.CauseRevoked
}

// orLocked says of a lease that is revoked whether all are.
func (n *Node) orLocked(err error) error {
	var refused *lease.Error
	if errors.As(err, &refused) && refused.Reason == lease.ReasonRevoked && n.revoking.locked() != nil {
		return n.whyRevoked()
	}
	return err
}

// lookup asks the ledger about an operation whose holder may not know of it if its
// lease was revoked.
func (n *Node) lookup(k ledger.Key) (ledger.Outcome, error) {
	o, err := n.ledger.Lookup(k)
	if err == nil {
		err = n.pastRevoked(k, o)
	}
	return o, err
}

func (n *Node) pastRevoked(k ledger.Key, o ledger.Outcome) error {
	if o.Start == nil {
		return nil
	}
	var audit struct {
		Links string `json:"links"`
	}
	_ = json.Unmarshal(o.Start.Audit, &audit) // without, the lease may have been issued at any time
	last := lease.Subject{Lease: o.Start.Lease, Invocation: k.Invocation, Holder: k.Holder, Issuer: k.Issuer}
	if revocations.Past(n.verifier.Revoked, last, audit.Links) {
		return n.whyRevoked()
	}
	return nil
}
