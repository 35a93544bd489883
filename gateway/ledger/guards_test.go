package ledger

import (
	"errors"
	"fmt"
	"io"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/gateway/ledger/segment"
)

// TestLeaseOfNothingIsExhausted: fewer than none is none.
func TestLeaseOfNothingIsExhausted(t *testing.T) {
	t.Parallel()
	l := mustOpen(t, ledgerDir(t))
	for _, most := range []int{0, -1} {
		c := testClaim(t, 1)
		c.MaxOperations = most
		require.Equal(t, StateExhausted, stateOf(t, l, c), "%d", most)
	}
	require.Equal(t, StateNone, stateOf(t, l, testClaim(t, 1)))
}

// TestClosedLedgerReservesNothing, though nothing was wrong with it.
func TestClosedLedgerReservesNothing(t *testing.T) {
	t.Parallel()
	l := mustOpen(t, ledgerDir(t))
	l.crash(t)
	out, err := l.Reserve(testClaim(t, 1))
	require.ErrorIs(t, err, os.ErrClosed)
	require.Nil(t, out.Reservation)
}

func TestLookupOfNothing(t *testing.T) {
	t.Parallel()
	l := mustOpen(t, ledgerDir(t))
	_, err := l.Lookup(Key{})
	require.Error(t, err)
}

// TestRecordThatIsNotThere is no record of another kind, and a pruned one is no error.
func TestRecordThatIsNotThere(t *testing.T) {
	t.Parallel()
	out, err := gone(fmt.Errorf("read: %w", errPruned))
	require.NoError(t, err)
	require.Equal(t, Outcome{State: StateClosed}, out)
	_, err = gone(io.ErrNoProgress)
	require.ErrorIs(t, err, io.ErrNoProgress)

	l := mustOpen(t, ledgerDir(t))
	c := testClaim(t, 1)
	require.NoError(t, begin(t, l, c).End(End{State: StateEnded, At: testTime}))
	l.mu.Lock()
	at, ok := l.views.places[l.operationHash(c.Key)]
	l.mu.Unlock()
	require.True(t, ok)
	out, err = l.recorded(at, nil)
	require.NoError(t, err)
	require.Equal(t, StateEnded, out.State)

	const beyond = 1 << 40
	damage := func(err error) (d *segment.DamageError) {
		_ = errors.As(err, &d)
		return d
	}
	_, err = l.readStart(beyond)
	require.ErrorIs(t, err, io.EOF)
	require.Nil(t, damage(err), "nothing was read that could be damaged")
	_, err = l.readStart(at.end)
	require.NotNil(t, damage(err), "an end is no start")
	require.Equal(t, at.end, damage(err).Offset)
	_, err = l.recorded(place{start: at.start, end: beyond}, nil)
	require.ErrorIs(t, err, io.EOF)
	require.Nil(t, damage(err))
	_, err = l.recorded(place{start: at.start, end: at.start}, nil)
	require.NotNil(t, damage(err), "a start is no end")
}
