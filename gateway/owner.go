package gateway

import (
	"cmp"
	"slices"

	"github.com/lendcli/lend/gateway/history"
	"github.com/lendcli/lend/gateway/ledger"
	"github.com/lendcli/lend/gateway/operation"
	"github.com/lendcli/lend/protocol/name"
)

// Operations returns what runs and what has ended lately, at most 1024 of those, or
// with all, the newest 10 000 of the whole record. They are in the order of their
// starts; more tells that there are older ones. Reading the record may fail: the
// error is the ledger's.
func (n *Node) Operations(all bool) (ops []OperationStatus, more bool, err error) {
	var past []history.Operation
	if all {
		past, more, err = history.Last(n.ledger.Walk, history.MaxLast, nil)
	} else {
		past, more, err = n.recent.List(n.ledger.Walk)
	}
	if err != nil {
		return nil, false, err
	}
	labels := n.labels()
	ops = n.running(labels) // after the past: what ends meanwhile is in both
	seen := make(map[ledger.Key]bool, len(ops))
	for _, o := range ops {
		seen[o.Key] = true
	}
	for _, p := range past {
		if p.End != nil && !seen[p.Key] {
			ops = append(ops, finished(p, labels))
		}
	}
	sortByStart(ops)
	return ops, more, nil
}

// Stop ends what runs under k, as its owner: with OWNER_STOPPED, or NOT_STARTED if
// nothing ran yet. now leaves no time between the polite stop and the kill. It
// tells whether there was something to stop; it does not wait for the end.
func (n *Node) Stop(k ledger.Key, now bool) bool {
	e := n.live.get(k)
	if e == nil || !e.running() {
		return false
	}
	e.op.Cancel(operation.CauseOwner)
	if now {
		e.op.Hurry(0)
	}
	n.cfg.Log.Info().Str("peer", k.Holder.String()).Str("op", k.Operation.String()).Bool("now", now).Msg("stopped by the owner")
	return true
}

// labels are the policy's names of peers.
func (n *Node) labels() map[name.PeerID]name.Label {
	out := map[name.PeerID]name.Label{}
	if p := n.policy.Load(); p != nil {
		for label, id := range p.Peers() {
			out[id] = label
		}
	}
	return out
}

// running are the operations of this process, in the order of their starts.
func (n *Node) running(labels map[name.PeerID]name.Label) []OperationStatus {
	var out []OperationStatus
	for _, e := range n.live.all() {
		out = append(out, n.shown(e, labels))
	}
	sortByStart(out)
	return out
}

func (n *Node) shown(e *entry, labels map[name.PeerID]name.Label) OperationStatus {
	o := status(recordOf(e, nil), labels)
	o.Attached, o.Held = e.op.Attached(), true
	o.Stdin, o.Stdout, o.Stderr = e.op.Totals()
	exit, ended := e.op.Ended()
	select {
	case <-e.decided:
		o.State = ledger.StateRunning
	default:
		o.State = ledger.StatePending
	}
	if ended {
		end := endOf(exit, o.Started.Add(exit.Duration))
		o.State, o.Ended, o.End = end.State, true, &end
	}
	return o
}

func recordOf(e *entry, end *ledger.End) history.Operation {
	return history.Operation{
		Key: e.key, Lease: e.verified.ID, Connector: e.request.Connector, Version: e.request.Version,
		Command: e.request.Command, Started: e.since, End: end,
	}
}

func status(h history.Operation, labels map[name.PeerID]name.Label) OperationStatus {
	return OperationStatus{
		Key: h.Key, Label: labels[h.Holder], Lease: h.Lease, Connector: h.Connector, Version: h.Version,
		Command: h.Command, Started: h.Started, End: h.End,
	}
}

// finished shows an operation that is over.
func finished(h history.Operation, labels map[name.PeerID]name.Label) OperationStatus {
	o := status(h, labels)
	o.State, o.Ended = h.End.State, true
	o.Stdin, o.Stdout, o.Stderr = h.End.Stdin, h.End.Stdout, h.End.Stderr
	return o
}

func sortByStart(ops []OperationStatus) {
	slices.SortStableFunc(ops, func(a, b OperationStatus) int {
		return cmp.Or(a.Started.Compare(b.Started), cmp.Compare(a.Operation.String(), b.Operation.String()))
	})
}
