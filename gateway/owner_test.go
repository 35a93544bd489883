package gateway

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/gateway/ledger"
	"github.com/lendcli/lend/protocol"
)

func (w *world) operation(s *protocol.Start) OperationStatus {
	w.t.Helper()
	ops, _, err := w.node.Operations(false)
	require.NoError(w.t, err)
	for _, o := range ops {
		if o.Operation == s.Operation {
			return o
		}
	}
	return OperationStatus{}
}

func TestOwnerSeesOperations(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ops, more, err := w.node.Operations(false)
	require.NoError(t, err)
	require.False(t, more)
	require.Empty(t, ops)
	d, l := w.dial(w.agent, "tcp"), w.lease()
	first, second := w.start(l, "exit", "--code=7"), w.start(l, "sleep")
	d.run(first).finish()
	r := d.run(second).answer()

	eventually(t, func() bool { return !w.operation(first).Held })
	o := w.operation(first)
	require.Equal(t, ledger.StateEnded, o.State)
	require.Equal(t, 7, o.End.Status)
	require.Equal(t, "agent", o.Label.String())
	require.Equal(t, "exit", o.Command.String())
	require.True(t, o.Ended)
	o = w.operation(second)
	require.Equal(t, ledger.StateRunning, o.State)
	require.Nil(t, o.End)
	require.True(t, o.Attached && o.Held)

	all, _, err := w.node.Operations(true)
	require.NoError(t, err)
	require.Len(t, all, 2)
	require.Equal(t, first.Operation, all[0].Operation, "in the order of the starts")
	require.Equal(t, second.Operation, all[1].Operation)

	require.True(t, w.node.Stop(o.Key, false))
	require.Equal(t, protocol.CodeOwnerStopped, r.finish().Code)
	eventually(t, func() bool { return !w.operation(second).Held })
	require.Equal(t, "OWNER_STOPPED", w.operation(second).End.Cause)
	require.False(t, w.node.Stop(o.Key, true), "it has ended")
	out, err := w.ledger.Lookup(o.Key)
	require.NoError(t, err)
	require.Equal(t, "OWNER_STOPPED", out.End.Cause, "the audit has it")
}

func TestOwnerSeesWhatNeverStarted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.host.Retire()
	d, l := w.dial(w.agent, "tcp"), w.lease()
	d.run(w.start(l, "print", "--size=1")).answer()
	ops, _, err := w.node.Operations(false)
	require.NoError(t, err)
	require.Empty(t, ops, "what was refused before its record is no operation")
}

func TestOwnerStopsAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d, l := w.dial(w.agent, "tcp"), w.lease()
	s := w.start(l, "sleep")
	r := d.run(s).answer()
	began := time.Now()
	require.True(t, w.node.Stop(w.operation(s).Key, true))
	require.Equal(t, protocol.CodeOwnerStopped, r.finish().Code)
	require.Less(t, time.Since(began), 4*time.Second, "not after the grace")
}

func TestOwnerOfAnUnknownOperation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.False(t, w.node.Stop(ledger.Key{}, true))
}

// slowBook lets something happen right before a Lookup.
type slowBook struct {
	book
	before atomic.Pointer[func()]
}

func (b *slowBook) Lookup(k ledger.Key) (ledger.Outcome, error) {
	if f := b.before.Swap(nil); f != nil {
		(*f)()
	}
	return b.book.Lookup(k)
}

// A Start that comes while a cancel looks for it is cancelled, not only reported.
func TestCancelWhileTheStartArrives(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := &slowBook{book: w.node.ledger}
	w.node.ledger = b
	d, l := w.dial(w.agent, "tcp"), w.lease()
	s := w.start(l, "sleep")
	answered := make(chan *remote, 1)
	arrives := func() { answered <- d.run(s).answer() }
	b.before.Store(&arrives)
	reply := w.cancel(w.dial(w.agent, "quic"), s, l)
	require.Equal(t, &protocol.CancelReply{State: protocol.OperationRunning}, reply)
	require.Equal(t, protocol.CodeCancelled, (<-answered).finish().Code)
}
