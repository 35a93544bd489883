package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/lendcli/lend/gateway/audit"
	"github.com/lendcli/lend/gateway/door"
	"github.com/lendcli/lend/gateway/grant"
	"github.com/lendcli/lend/gateway/ledger"
	"github.com/lendcli/lend/gateway/operation"
	"github.com/lendcli/lend/gateway/revocations"
	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/localhost/failpoint"
	"github.com/lendcli/lend/localhost/route"
	"github.com/lendcli/lend/policy"
	"github.com/lendcli/lend/protocol"
	"github.com/lendcli/lend/protocol/name"
)

// caller is the peer at the other end of a connection, by both of its names.
type caller struct {
	id     peer.ID
	holder name.PeerID
	local  bool            // the owner, who tries what the peer would get
	gone   <-chan struct{} // closed when the owner has given up; nil for a peer
}

// book is what admission asks of the ledger.
type book interface {
	Reserve(ledger.Claim) (ledger.Outcome, error)
	Lookup(ledger.Key) (ledger.Outcome, error)
	Frozen(name.PeerID, name.InvocationID, name.PeerID) ([]byte, bool, error)
	Digest(parts ...[]byte) [32]byte
	Birth() time.Time
	High() time.Time
	Refuse(ledger.Refusal) error
	Event(ledger.Event) error
	Walk(fn func(ledger.Entry) error) error
	Err() error
}

// admitted is what a Start got: an operation of this process, or what is
// recorded of one that has ended.
type admitted struct {
	entry *entry
	fresh bool // this Start began it
	end   *ledger.End
}

// admit is the one way of a Start to a process. The request was decoded strictly
// (1) and is not changed; each step may refuse, and what it refuses has not
// happened. An error is for refuse. A panic denies.
func (n *Node) admit(c caller, s *protocol.Start) (out admitted, err error) {
	stage := "lease"
	defer func() {
		if recover() != nil {
			out, err = admitted{}, &panicError{stage}
		}
	}()

	// 2. The lease. Before it verifies, nothing else of s is looked at.
	verified, err := n.verify(c, s.Lease)
	if err != nil {
		return admitted{}, err
	}
	grant, err := verified.Grant(s.Connector, s.Version, s.Command)
	if err != nil {
		return admitted{}, err
	}

	// 3, 4. The frozen grant and the current policy; the canonical argv.
	stage = "policy"
	request := policy.Request{
		Issuer: verified.Root, Peer: c.holder,
		Connector: s.Connector, Version: s.Version, Command: s.Command,
		Arguments: s.Arguments, Pins: grant.Pins, Stdin: s.Stdin, Now: n.cfg.Now(),
	}
	decided, err := n.decide(verified, request)
	if err != nil {
		return admitted{}, err
	}
	n.door.Proved(c.id)

	// What is known of the operation already is the answer, and counts against no
	// limit.
	stage = "limits"
	key := ledger.Key{Issuer: verified.Root, Invocation: verified.Invocation, Holder: c.holder, Operation: s.Operation}
	digest := n.digest(s)
	if e := n.live.get(key); e != nil {
		return join(e, digest)
	}
	known, err := n.ledger.Lookup(key)
	if err != nil || known.State != ledger.StateNone {
		return recorded(known, digest, err)
	}

	// 5. Limits of the peer, of the gateway and of the lease.
	release, err := n.door.Slot(c.id)
	if err != nil {
		return admitted{}, err
	}
	owned := false
	defer func() {
		if !owned {
			release()
		}
	}()
	e := n.newEntry(key, digest, c, verified, request, decided, release)
	e.chain, e.finish = s.Lease, grant.Finish
	most := max(maxTails, 2*door.LimitsOf(n.policy.Load()).OperationsPerPeer)
	if n.budget.Full() {
		most = 1
	}
	if got, err := n.live.add(e, most); err != nil || got != e {
		e.op.Abandon()
		if err != nil {
			return admitted{}, err
		}
		return join(got, digest)
	}
	e.listed, owned = true, true
	select {
	case <-c.gone: // cancelOf may have come before it was listed
		e.op.Cancel(operation.CauseCaller)
	default:
	}
	return n.begin(e, decided)
}

// begin takes a published entry through the last steps. Whatever goes wrong, the
// entry is decided, and nothing runs unless the error is nil.
func (n *Node) begin(e *entry, d *decision) (out admitted, err error) {
	stage, durable := "permit", false
	var ready route.Prepared
	var process route.Process
	defer close(e.decided)
	defer func() {
		if recover() != nil {
			out, err = admitted{}, &panicError{stage}
		}
		if err != nil && durable {
			err = n.notStarted(e, err)
		}
		if !out.fresh {
			if e.reservation != nil && !durable {
				e.reservation.Release()
			}
			end(ready, process)
			e.err = err
			e.op.Abandon()
		}
	}()
	ctx := e.op.Context()
	if err := n.permit(ctx, e.peer); err != nil {
		return admitted{}, err
	}
	defer n.permits.Release()

	// 6. The reservation in memory.
	stage = "reserve"
	outcome, err := n.ledger.Reserve(claim(e, d))
	if err != nil || outcome.State != ledger.StateNone {
		e.err = err
		return recorded(outcome, e.digest, err)
	}
	e.reservation = outcome.Reservation
	failpoint.Hit("reserved")
	if frozen := e.reservation.Frozen(); !bytes.Equal(frozen, d.bytes) { // another first use came before
		if d, err = n.decideWithin(frozen, e.request); err != nil {
			return admitted{}, err
		}
		e.setFrozen(d.frozen)
	}

	// 7. Exactly one route, whose identity is pinned.
	stage = "route"
	identity, err := n.pin(e.request, d)
	if err != nil {
		return admitted{}, err
	}

	if d, err = n.still(e, d); err != nil {
		return admitted{}, err
	}

	// 8. The one durable record. The start is readied meanwhile, by the capability and
	// nothing else.
	stage = "prepare"
	ready, err = n.port.prepare(ctx, &capability{
		issuer: e.key.Issuer, invocation: e.key.Invocation, holder: e.key.Holder, operation: e.key.Operation,
		route: identity, frozen: d.bytes, call: d.Call, workspace: d.Workspace, place: d.Surface.Place(), stdin: e.request.Stdin,
		limits: route.Limits{Processes: d.Limits.Processes, Memory: d.Limits.Memory},
	})
	if err != nil {
		return admitted{}, err
	}
	stage = "record"
	record, err := n.record(e, d, identity)
	if err != nil {
		return admitted{}, err
	}
	began := time.Now()
	if err := e.reservation.Start(ctx, record); err != nil {
		return admitted{}, errors.Join(err, context.Cause(ctx))
	}
	durable = true
	n.cfg.Observer.Recorded(time.Since(began))
	failpoint.Hit("recorded")

	// 9. The start of what was readied, and of nothing else.
	stage = "start"
	process, err = start(ctx, ready)
	if err != nil {
		return admitted{}, errors.Join(context.Cause(ctx), err)
	}
	failpoint.Hit("started")
	e.op.Run(process)
	return admitted{entry: e, fresh: true}, nil
}

// end ends a process that no operation has taken over, or what was readied for it;
// nil is none.
func end(ready route.Prepared, p route.Process) {
	defer func() { _ = recover() }() // what panics here has panicked before
	switch {
	case p != nil:
		_ = p.Close()
	case ready != nil:
		ready.Drop()
	}
}

// claim asks for an operation under every link of its lease.
func claim(e *entry, d *decision) ledger.Claim {
	links := e.verified.Links
	last := &links[len(links)-1]
	c := ledger.Claim{Key: e.key, Digest: e.digest, Lease: last.ID, MaxOperations: last.MaxOperations, Frozen: d.bytes}
	for i := range links[:len(links)-1] {
		c.Above = append(c.Above, ledger.Link{Lease: links[i].ID, Holder: links[i].Holder, MaxOperations: links[i].MaxOperations})
	}
	return c
}

// still asks again, right before the start, what may have changed since the
// decision. A Reload or a revocation that comes later finds e among the live ones. An
// operation keeps the limits that it was made with: others are for its next try.
func (n *Node) still(e *entry, d *decision) (*decision, error) {
	now := n.cfg.Now()
	switch {
	case e.verified.Revoked(n.verifier.Revoked):
		return nil, n.whyRevoked()
	case !now.Before(e.verified.NotAfter):
		return nil, operation.CauseLeaseExpired
	}
	p, err := n.current()
	if err != nil {
		return nil, err
	}
	if p != d.policy {
		if _, err := n.verifier.Verify(e.chain, e.key.Holder); err != nil {
			return nil, err
		}
		r := e.request
		r.Now = now
		if d, err = n.within(p, d.frozen, d.bytes, r); err != nil {
			return nil, err
		}
	}
	if d.Limits != e.limits {
		return nil, &protocol.Refusal{Code: protocol.CodeBusy, RetryAfter: door.RetryBusy, Cause: errLimits}
	}
	return d, nil
}

// verify checks the lease that the peer shows. Leases from before the ledger was
// begun may have been used without a trace.
func (n *Node) verify(c caller, chain [][]byte) (*lease.Verified, error) {
	if r := n.door.Penalty(c.id); r != nil && !c.local {
		return nil, r
	}
	v, err := n.verifier.Verify(chain, c.holder)
	if err != nil {
		return nil, n.orLocked(err)
	}
	if v.IssuedAt.Before(n.ledger.Birth().Truncate(time.Millisecond)) {
		return nil, &protocol.Refusal{Code: protocol.CodeLeaseTooOld}
	}
	return v, nil
}

// decision is a policy.Decision that allows, with the grant that it was made by.
type decision struct {
	policy.Decision
	frozen []*policy.Surface
	bytes  []byte         // frozen, as the ledger keeps it
	policy *policy.Policy // that decided
}

// decide asks the frozen grant and the current policy. At the first use of an
// invocation, what the policy allows the lease now is frozen.
func (n *Node) decide(v *lease.Verified, r policy.Request) (*decision, error) {
	stored, known, err := n.ledger.Frozen(v.Root, v.Invocation, v.Holder)
	if err != nil {
		return nil, err
	}
	if known {
		return n.decideWithin(stored, r)
	}
	p, err := n.current()
	if err != nil {
		return nil, err
	}
	if d := p.Decide(r, n.contracts); !d.Allowed {
		return nil, &deniedError{d}
	}
	frozen := p.Freeze(r.Issuer, r.Peer, r.Now, targets(v), n.contracts)
	encoded := grant.Encode(frozen)
	if len(encoded) > ledger.MaxFrozen {
		return nil, &protocol.Refusal{Code: protocol.CodeUnsupported, Public: "the lease grants more than an invocation can freeze"}
	}
	return n.within(p, frozen, encoded, r)
}

// targets are the commands that a lease grants.
func targets(v *lease.Verified) (out []policy.Target) {
	for _, g := range v.Grants {
		for _, c := range g.Commands {
			out = append(out, policy.Target{Connector: g.Connector, Version: g.Version, Command: c})
		}
	}
	return out
}

func (n *Node) decideWithin(stored []byte, r policy.Request) (*decision, error) {
	frozen, err := n.grants.Parse(stored)
	if err != nil {
		return nil, err
	}
	p, err := n.current()
	if err != nil {
		return nil, err
	}
	return n.within(p, frozen, stored, r)
}

// within asks the frozen grant and p, which is the current policy.
func (n *Node) within(p *policy.Policy, frozen []*policy.Surface, encoded []byte, r policy.Request) (*decision, error) {
	d := p.DecideWithin(frozen, r, n.contracts)
	if !d.Allowed {
		return nil, &deniedError{d}
	}
	return &decision{d, frozen, encoded, p}, nil
}

// pin resolves the one route that was decided about.
func (n *Node) pin(r policy.Request, d *decision) (route.Identity, error) {
	found, err := n.resolve(route.Query{Connector: r.Connector, Version: r.Version, Connection: d.Connection})
	if err != nil {
		return route.Identity{}, err
	}
	if found.Identity.ContractHash != d.Surface.ContractHash() {
		return route.Identity{}, route.ErrIdentityMismatch // replaced since the decision
	}
	return found.Identity, nil
}

// record is what the ledger keeps of a start: no argument values, unless the deciding
// rule says so.
func (n *Node) record(e *entry, d *decision, identity route.Identity) (ledger.Start, error) {
	pinned, pinErr := json.Marshal(identity)
	arguments, variables := d.Recorded(n.ledger.Digest)
	noted, err := audit.Noted{
		Rule: d.Rule.Name, Policy: d.policy.Digest(), Workspace: d.Workspace.String(), Purpose: name.Quote(e.verified.Purpose),
		Links: revocations.Links(e.verified.Subject(), e.verified.Subjects()), Arguments: arguments, Variables: variables,
	}.Encode()
	if err := errors.Join(pinErr, err); err != nil {
		return ledger.Start{}, fmt.Errorf("encode record: %w", err)
	}
	return ledger.Start{
		LeaseNotAfter: e.verified.Links[0].NotAfter, // what counts under the root is needed until then
		Connector:     e.request.Connector, Version: e.request.Version, Command: e.request.Command,
		Identity: pinned, Audit: noted,
	}, nil
}

// permit queues for one of the starts that may happen at the same moment.
func (n *Node) permit(ctx context.Context, p peer.ID) error {
	queue, cancel := context.WithTimeout(ctx, permitTimeout)
	defer cancel()
	if err := n.permits.Acquire(queue, p); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		return &protocol.Refusal{Code: protocol.CodeBusy, RetryAfter: door.RetryBusy, Cause: err}
	}
	return nil
}

func start(ctx context.Context, ready route.Prepared) (route.Process, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return ready.Start(ctx)
}

// notStarted records that nothing ran under an ID that is spent, and returns what
// the peer is told now and whenever it asks again.
func (n *Node) notStarted(e *entry, cause error) (refused error) {
	defer func() {
		if recover() != nil {
			refused = &protocol.Refusal{Code: protocol.CodeNotStarted, Cause: &panicError{"record"}}
		}
	}()
	code := protocol.CodeNotStarted
	if c := refuse(cause).Code; c == protocol.CodeCancelled {
		code = c
	}
	end := ledger.End{State: ledger.StateNotStarted, At: n.cfg.Now(), Cause: code.String(), Detail: name.Quote(cause.Error())}
	n.recent.Ended(recordOf(e, &end))
	if err := e.reservation.End(end); err != nil {
		n.cfg.Log.Error().Err(err).Msg("ledger: end not recorded")
	}
	return &protocol.Refusal{Code: code, Cause: cause}
}

// join gives the operation to the same request again, once it is decided.
func join(e *entry, digest [32]byte) (admitted, error) {
	if e.digest != digest {
		return admitted{}, &stateError{ledger.StateConflict}
	}
	select {
	case <-e.decided:
	case <-time.After(startTimeout):
		return admitted{}, &stateError{ledger.StatePending}
	}
	if e.err != nil {
		return admitted{}, e.err
	}
	return admitted{entry: e}, nil
}

// recorded answers from the ledger.
func recorded(o ledger.Outcome, digest [32]byte, err error) (admitted, error) {
	switch {
	case err != nil:
		return admitted{}, err
	case o.Start != nil && o.Start.Digest != digest:
		return admitted{}, &stateError{ledger.StateConflict}
	case o.State == ledger.StateEnded:
		return admitted{end: o.End}, nil
	case o.State == ledger.StateNotStarted:
		return admitted{}, &protocol.Refusal{Code: codeNamed(o.End.Cause), Cause: &stateError{o.State}}
	}
	return admitted{}, &stateError{o.State}
}

// digest is the keyed digest of what a Start asks for; the lease may be renewed.
func (n *Node) digest(s *protocol.Start) [32]byte {
	stdin := []byte{0}
	if s.Stdin {
		stdin[0] = 1
	}
	parts := [][]byte{[]byte(s.Connector.String()), []byte(s.Version.String()), []byte(s.Command.String()), stdin}
	for _, a := range s.Arguments {
		parts = append(parts, []byte(a))
	}
	return n.ledger.Digest(parts...)
}
