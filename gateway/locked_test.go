package gateway

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/gateway/ledger"
	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/protocol"
)

func lockedWorld(t *testing.T) *world {
	t.Helper()
	return newWorld(t, func(_ *world, c *Config) { c.Ledger, c.Locked = nil, ledger.ErrCorrupt })
}

// A locked gateway runs nothing, and says why to those who may know.
func TestLockedGateway(t *testing.T) {
	t.Parallel()
	for _, transport := range transports() {
		t.Run(transport, func(t *testing.T) {
			w := lockedWorld(t)
			d, s := w.dial(w.agent, transport), w.start(w.lease(), "print")
			d.run(s).wantRefused(protocol.CodeGatewayLocked)
			d.run(s).wantRefused(protocol.CodeGatewayLocked)
			d.run(w.attach(s, nil, 0)).wantRefused(protocol.CodeGatewayLocked)
			reply, ok := w.cancel(d, s).(*protocol.Refused)
			require.True(t, ok)
			require.Equal(t, protocol.CodeGatewayLocked, reply.Code)
			// What is wrong with a lease is said as ever.
			untrusted := w.seal(newIdentity(t))
			d.run(w.start(untrusted, "print")).wantRefused(protocol.CodeDenied)
			foreign := w.lease(func(l *lease.Lease) { l.Holder = newIdentity(t).id })
			d.run(w.start(foreign, "print")).wantRefused(protocol.CodeDenied)
			require.Zero(t, w.host.Starts.Load())
			status := w.node.Status()
			require.ErrorIs(t, status.LedgerErr, ledger.ErrCorrupt)
			require.Empty(t, status.Operations)
		})
	}
}

// closedBook is a ledger that has pruned everything.
type closedBook struct{ book }

func (closedBook) Lookup(ledger.Key) (ledger.Outcome, error) {
	return ledger.Outcome{State: ledger.StateClosed}, nil
}

func (closedBook) Reserve(ledger.Claim) (ledger.Outcome, error) {
	return ledger.Outcome{State: ledger.StateClosed}, nil
}

// lateBook prunes between the two questions of an admission.
type lateBook struct{ closedBook }

func (b lateBook) Lookup(k ledger.Key) (ledger.Outcome, error) { return b.book.Lookup(k) }

func TestClosedInvocation(t *testing.T) {
	t.Parallel()
	for _, transport := range transports() {
		for label, wrap := range map[string]func(book) book{
			"before": func(b book) book { return closedBook{b} },
			"late":   func(b book) book { return lateBook{closedBook{b}} },
		} {
			t.Run(transport+"-"+label, func(t *testing.T) {
				w := newWorld(t)
				w.node.ledger = wrap(w.node.ledger)
				d, s := w.dial(w.agent, transport), w.start(w.lease(), "print")
				d.run(s).wantRefused(protocol.CodeInvocationClosed)
				require.Zero(t, w.host.Starts.Load())
				require.Empty(t, w.node.Status().Operations)
			})
		}
	}
}

// A full disk is on record when it is, and when it no longer is, and in the status
// meanwhile.
func TestAFullLedgerIsShown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.False(t, w.node.Status().LedgerFull)
	close(w.node.closing) // the sweeper's own look would be another
	w.node.work.Wait()
	t.Cleanup(func() { w.node.closing = make(chan struct{}) })
	for range 2 {
		w.node.noteFull(fmt.Errorf("x: %w", ledger.ErrFull))
		require.True(t, w.node.Status().LedgerFull)
	}
	for range 2 {
		w.node.noteFull(nil)
		require.False(t, w.node.Status().LedgerFull)
	}
	require.Equal(t, []map[string]string{{"what": "the ledger"}}, w.events("degraded"))
	require.Equal(t, []map[string]string{{"what": "the ledger"}}, w.events("recovered"))
	w.node.noteFull(ledger.ErrFull)
	w.node.noteFull(ledger.ErrFailed)
	require.False(t, w.node.Status().LedgerFull, "it is shown as failed")
	require.Len(t, w.events("recovered"), 1)
}
