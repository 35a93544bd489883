package gateway

import (
	"errors"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/lendcli/lend/gateway/ledger"
	"github.com/lendcli/lend/gateway/operation"
	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/policy"
	"github.com/lendcli/lend/protocol"
)

// stopBudget is how long what may not go on has between the polite stop and the
// kill.
const stopBudget = 500 * time.Millisecond

var (
	errSuspended = errors.New("the policy is missing")
	errLimits    = errors.New("the limits have changed since the decision")
)

// Reload makes p the policy: for connections and admissions at once, and what
// runs and is no longer allowed is ended, within a second. nil denies everything.
// It ends a Suspend. The ledger has policy.loaded, or policy.restored if p is what
// was in force before a Suspend.
func (n *Node) Reload(p *policy.Policy) {
	n.reloading.Lock()
	defer n.reloading.Unlock()
	event, before := "policy.loaded", n.digestOfPolicy()
	n.policy.Store(p)
	n.door.Swap(p)
	if n.suspended.Swap(false) && n.digestOfPolicy() == before {
		event = "policy.restored"
	}
	n.recheck(true)
	n.evictBy.Store(time.Now().Add(evictBudget).UnixNano())
	n.evict()
	facts := map[string]string{"digest": n.digestOfPolicy()}
	if p != nil {
		facts["file"] = p.File()
	}
	n.cfg.Log.Info().Str("policy", n.digestOfPolicy()).Msg("policy in force")
	n.Record(ledger.Event{Name: event, Facts: facts})
}

// Suspend denies new work with POLICY_DENIED until the next Reload, whatever the
// policy allows: the owner's file is not there. What runs goes on under the policy
// that it was admitted by, and can be attached to and cancelled. The ledger has
// policy.missing, once.
func (n *Node) Suspend() {
	n.reloading.Lock()
	defer n.reloading.Unlock()
	if !n.suspended.Swap(true) {
		n.cfg.Log.Error().Msg("the policy is missing: new work is denied")
		n.Record(ledger.Event{Name: "policy.missing"})
	}
}

// current is the policy that new work is decided by.
func (n *Node) current() (*policy.Policy, error) {
	if n.suspended.Load() {
		return nil, &protocol.Refusal{Code: protocol.CodePolicyDenied, Public: "the owner's policy is not there", Cause: errSuspended}
	}
	return n.policy.Load(), nil
}

// Recheck looks at once at what runs: expiry and revocations. It happens twice a
// second anyway.
func (n *Node) Recheck() { n.recheck(false) }

// recheck ends what may not go on: expired, revoked, of an issuer whose trust is
// over, or with again, no longer allowed by the policy.
func (n *Node) recheck(again bool) {
	now, p := n.cfg.Now(), n.policy.Load()
	for _, e := range n.live.all() {
		if cause, stop := n.judged(e, p, now, again); stop {
			e.op.Cancel(cause)
			if cause != operation.CauseLeaseExpired {
				e.op.Hurry(stopBudget)
			}
		}
	}
}

// judged is stop, and a panic ends what could not be judged.
func (n *Node) judged(e *entry, p *policy.Policy, now time.Time, again bool) (cause operation.Cause, stop bool) {
	defer func() {
		if recover() != nil {
			cause, stop = operation.CauseInternal, true
		}
	}()
	return n.stop(e, p, now, again)
}

func (n *Node) stop(e *entry, p *policy.Policy, now time.Time, again bool) (operation.Cause, bool) {
	if !e.running() {
		return 0, false
	}
	if e.verified.Revoked(n.verifier.Revoked) {
		return n.causeRevoked(), true
	}
	if !e.finish && !now.Before(e.verified.NotAfter) {
		return operation.CauseLeaseExpired, true
	}
	if rule, ok := p.Issuer(e.verified.Root); !ok || !rule.Trusted(now) {
		return operation.CausePolicy, true
	}
	if again && n.disallowed(e, p, now) {
		return operation.CausePolicy, true
	}
	return 0, false
}

// disallowed tells whether the policy would not admit now what was admitted before:
// by what it says of the lease, and of the request.
func (n *Node) disallowed(e *entry, p *policy.Policy, now time.Time) bool {
	_, err := n.verifier.Verify(e.chain, e.key.Holder)
	var refused *lease.Error
	if err != nil && !(e.finish && errors.As(err, &refused) && refused.Reason == lease.ReasonExpired) {
		return true
	}
	r := e.request
	r.Now = now
	return !p.DecideWithin(e.surfaces(), r, n.contracts).Allowed
}

// evict disconnects the peers that the policy does not admit any more; those that
// are still to be told an end get a moment for it.
func (n *Node) evict() {
	waiting := map[peer.ID]bool{}
	if time.Now().UnixNano() < n.evictBy.Load() {
		for _, e := range n.live.all() {
			waiting[e.peer] = waiting[e.peer] || e.op.Attached()
		}
	}
	for _, id := range n.door.Unwelcome() {
		if !waiting[id] {
			n.disconnect(id)
		}
	}
}
