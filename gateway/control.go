package gateway

import (
	"bytes"
	"encoding/json"
	"slices"
	"time"

	"github.com/lendcli/lend/gateway/door"
	"github.com/lendcli/lend/gateway/ledger"
	"github.com/lendcli/lend/gateway/operation"
	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/policy"
	"github.com/lendcli/lend/protocol"
	"github.com/lendcli/lend/protocol/argv"
	"github.com/lendcli/lend/protocol/name"
)

// control serves one request and its reply.
func (n *Node) control(c *call) error {
	answer := func(reply protocol.ControlReply, err error) error {
		if err != nil {
			reply = n.refused(c, nil, err).Frame()
		}
		if err := protocol.WriteControlReply(c, reply); err != nil {
			c.reset(protocol.CodeInternal)
			return err
		}
		return c.linger()
	}
	if c.Conn().Stat().Limited {
		return answer(nil, &protocol.Refusal{Code: protocol.CodeLimitedLink})
	}
	request, err := protocol.ReadControlRequest(c)
	if err != nil {
		return answer(nil, err)
	}
	switch q := request.(type) {
	case *protocol.CancelRequest:
		return answer(n.cancel(c.caller, q))
	case *protocol.StatusRequest:
		return answer(n.status(c.caller, q))
	case *protocol.RevokeRequest:
		return answer(n.revoke(q))
	}
	return answer(nil, &protocol.Refusal{Code: protocol.CodeUnsupported})
}

// keyOf names an operation of the peer that asks: another holder's does not exist
// for it.
func keyOf(c caller, k protocol.OperationKey) ledger.Key {
	return ledger.Key{Issuer: k.Issuer, Invocation: k.Invocation, Holder: c.holder, Operation: k.Operation}
}

// cancel stops an operation. With a valid lease, one that has not started yet
// never will.
func (n *Node) cancel(c caller, q *protocol.CancelRequest) (protocol.ControlReply, error) {
	k := keyOf(c, q.OperationKey)
	if state, err := n.cancelKnown(k, q.Grace); err != nil || state != 0 {
		return cancelled(state, err)
	}
	if len(q.Lease) == 0 {
		return nil, &stateError{ledger.StateNone}
	}
	v, err := n.verify(c, q.Lease)
	if err != nil {
		return nil, err
	}
	if v.Root != k.Issuer || v.Invocation != k.Invocation {
		return nil, &stateError{ledger.StateNone}
	}
	if err := n.live.early.Add(k, v.NotAfter, n.cfg.Now()); err != nil {
		return nil, &protocol.Refusal{Code: protocol.CodeBusy, RetryAfter: door.RetryBusy, Cause: err}
	}
	if state, err := n.cancelKnown(k, q.Grace); err != nil || state != 0 { // it came in between
		return cancelled(state, err)
	}
	return &protocol.CancelReply{State: protocol.OperationNotStarted}, nil
}

func cancelled(s protocol.OperationState, err error) (protocol.ControlReply, error) {
	if err != nil {
		return nil, err
	}
	return &protocol.CancelReply{State: s}, nil
}

// cancelKnown cancels an operation that runs, and says what it was: 0 if it never
// was. One that is about to run has spent no ID yet: that it never will is
// remembered.
func (n *Node) cancelKnown(k ledger.Key, grace time.Duration) (protocol.OperationState, error) {
	e := n.live.get(k)
	if e == nil {
		o, err := n.ledger.Lookup(k)
		if err != nil {
			return 0, err
		}
		if o.State == ledger.StateNone {
			return 0, nil
		}
		if e = n.live.get(k); e == nil {
			return wireState(o.State), n.pastRevoked(k, o)
		} // it came in between
	}
	state := protocol.OperationRunning
	if !e.running() {
		state = protocol.OperationEnded
	}
	select {
	case <-e.decided:
	default:
		if err := n.live.early.Add(k, e.verified.NotAfter, n.cfg.Now()); err != nil {
			n.cfg.Log.Warn().Err(err).Msg("a cancel is not remembered")
		}
	}
	e.op.Cancel(operation.CauseCaller)
	if grace > 0 {
		e.op.Hurry(grace)
	}
	return state, nil
}

func (n *Node) status(c caller, q *protocol.StatusRequest) (protocol.ControlReply, error) {
	k := keyOf(c, q.OperationKey)
	if e := n.live.get(k); e != nil {
		if e.verified.Revoked(n.verifier.Revoked) {
			return nil, n.whyRevoked()
		}
		if exit, ended := e.op.Ended(); ended {
			return &protocol.StatusReply{State: protocol.OperationEnded, Exit: &exit}, nil
		}
		return &protocol.StatusReply{State: protocol.OperationRunning}, nil
	}
	o, err := n.lookup(k)
	switch {
	case err != nil:
		return nil, err
	case o.State == ledger.StateNone && !n.live.early.Has(k): // one that was cancelled before has not started
		return nil, &stateError{o.State}
	case o.State == ledger.StateEnded:
		exit := exitOf(o.End)
		return &protocol.StatusReply{State: protocol.OperationEnded, Exit: &exit}, nil
	}
	return &protocol.StatusReply{State: wireState(o.State)}, nil
}

func wireState(s ledger.State) protocol.OperationState {
	switch s {
	case ledger.StatePending, ledger.StateRunning:
		return protocol.OperationRunning
	case ledger.StateEnded:
		return protocol.OperationEnded
	case ledger.StateNotStarted, ledger.StateNone:
		return protocol.OperationNotStarted
	case ledger.StateUnknown, ledger.StateConflict, ledger.StateExhausted, ledger.StateClosed:
	}
	return protocol.OperationOutcomeUnknown
}

// catalog tells what a lease may run now. It is derived each time and not kept.
func (n *Node) catalog(c *call) error {
	refuse := func(err error) error {
		r := n.refused(c, nil, err)
		if err := protocol.WriteCatalogRefused(c, r.Frame()); err != nil {
			c.reset(r.Code)
			return err
		}
		return c.linger()
	}
	if c.Conn().Stat().Limited {
		return refuse(&protocol.Refusal{Code: protocol.CodeLimitedLink})
	}
	q, err := protocol.ReadCatalogRequest(c)
	if err != nil {
		return refuse(err)
	}
	entries, err := n.entries(c.caller, q.Lease)
	if err == nil && len(entries) > protocol.MaxCatalogEntries {
		err = &protocol.Refusal{Code: protocol.CodeUnsupported, Public: "the lease grants more than a catalogue holds"}
	}
	if err != nil {
		return refuse(err)
	}
	_ = c.SetWriteDeadline(time.Now().Add(protocol.StartTimeout))
	if err := protocol.WriteCatalog(c, entries); err != nil {
		c.reset(protocol.CodeInternal)
		return err
	}
	c.read() // not earlier: what is kept for a peer that does not read is bounded by it
	return c.linger()
}

// entries are the lease's commands that the current policy has, and the frozen
// grant too, if the invocation has begun.
func (n *Node) entries(c caller, chain [][]byte) (out []protocol.CatalogEntry, err error) {
	defer func() {
		if recover() != nil {
			out, err = nil, &panicError{"catalogue"}
		}
	}()
	v, err := n.verify(c, chain)
	if err != nil {
		return nil, err
	}
	stored, known, err := n.ledger.Frozen(v.Root, v.Invocation, v.Holder)
	if err != nil {
		return nil, err
	}
	var frozen []*policy.Surface
	if known {
		if frozen, err = n.grants.Parse(stored); err != nil {
			return nil, err
		}
	}
	p, err := n.current()
	if err != nil {
		return nil, err
	}
	current := p.Freeze(v.Root, c.holder, n.cfg.Now(), targets(v), n.contracts)
	if len(current) > 0 {
		n.door.Proved(c.id)
	}
	seen := map[policy.Target]bool{}
	for _, s := range current {
		within := s
		if known {
			within = sameStart(frozen, s)
		}
		if within == nil || seen[s.Target()] {
			continue
		}
		seen[s.Target()] = true
		entry, err := describe(v, s, within)
		if err != nil {
			continue // the lease leaves nothing of it to run
		}
		out = append(out, entry)
	}
	return out, nil
}

// sameStart finds a frozen surface under which s would start the same thing.
func sameStart(frozen []*policy.Surface, s *policy.Surface) *policy.Surface {
	for _, f := range frozen {
		if f.SameStart(s) {
			return f
		}
	}
	return nil
}

// describe shows what both surfaces accept, by what the lease grants. An error means
// that this is nothing.
func describe(v *lease.Verified, current, frozen *policy.Surface) (protocol.CatalogEntry, error) {
	t, command := current.Target(), current.Command()
	grant, err := v.Grant(t.Connector, t.Version, t.Command)
	if err != nil {
		return protocol.CatalogEntry{}, err
	}
	schema, err := bothSchemas(current, frozen, grant.Pins)
	if err != nil {
		return protocol.CatalogEntry{}, err
	}
	return protocol.CatalogEntry{
		Connector: t.Connector, Version: t.Version, Command: t.Command,
		Summary: command.Description, Effect: string(command.Effect), InputSchema: schema,
		Stdin:  slices.ContainsFunc(command.Parameters, func(p argv.Parameter) bool { return p.Stdin != nil }),
		Limits: wireLimits(current.Limits().Both(frozen.Limits())),
	}, nil
}

// bothSchemas is the schema of what both surfaces accept: theirs, if they are the same.
func bothSchemas(current, frozen *policy.Surface, pins map[name.Parameter][]string) (json.RawMessage, error) {
	newer, err := current.InputSchema(pins)
	if err != nil {
		return nil, err
	}
	if bytes.Equal(current.Marshal(), frozen.Marshal()) {
		return newer, nil
	}
	older, err := frozen.InputSchema(pins)
	if err != nil {
		return nil, err
	}
	return json.Marshal(map[string]any{"type": "object", "allOf": []json.RawMessage{older, newer}})
}
