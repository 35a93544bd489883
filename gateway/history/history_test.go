package history

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/gateway/ledger"
	"github.com/lendcli/lend/protocol/name"
)

func key(t *testing.T, n int) ledger.Key {
	t.Helper()
	id, err := name.ParseOperationID(fmt.Sprintf("operation-%08d", n))
	require.NoError(t, err)
	return ledger.Key{Operation: id}
}

// records are n starts, each with its end but for those that run.
func records(t *testing.T, n int, running ...int) Walk {
	t.Helper()
	var all []ledger.Entry
	runs := map[int]bool{}
	for _, r := range running {
		runs[r] = true
	}
	for i := range n {
		at := time.UnixMilli(int64(i + 1))
		all = append(all, ledger.Entry{Index: uint64(2 * i), Start: &ledger.Start{Key: key(t, i), At: at, Frozen: []byte("not kept")}})
		if !runs[i] {
			all = append(all, ledger.Entry{Index: uint64(2*i + 1), Of: uint64(2 * i), End: &ledger.End{State: ledger.StateEnded, Status: i % 256}})
		}
	}
	return func(f func(ledger.Entry) error) error {
		for _, en := range all {
			if err := f(en); err != nil {
				return err
			}
		}
		return nil
	}
}

func TestLastKeepsTheNewest(t *testing.T) {
	ops, more, err := Last(records(t, 10, 9), 3, nil)
	require.NoError(t, err)
	require.True(t, more)
	require.Len(t, ops, 3)
	for i, o := range ops {
		require.Equal(t, key(t, 7+i), o.Key)
	}
	require.Equal(t, 7, ops[0].End.Status)
	require.Nil(t, ops[2].End, "it runs")

	ops, more, err = Last(records(t, 10), 3, func(k ledger.Key) bool { return k == key(t, 1) })
	require.NoError(t, err)
	require.False(t, more)
	require.Len(t, ops, 1)
	require.Equal(t, time.UnixMilli(2), ops[0].Started)
}

func TestRecentReadsOnceAndAddsWhatEnds(t *testing.T) {
	reads := 0
	walk := func(f func(ledger.Entry) error) error {
		reads++
		return records(t, 5, 3, 4)(f)
	}
	var r Recent
	r.Ended(Operation{Key: key(t, 3), Started: time.UnixMilli(4), End: &ledger.End{Status: 33}})
	ops, more, err := r.List(walk)
	require.NoError(t, err)
	require.False(t, more)
	require.Len(t, ops, 4, "the one that runs is not here")
	require.Equal(t, 33, ops[3].End.Status)
	r.Ended(Operation{Key: key(t, 4), Started: time.UnixMilli(5), End: &ledger.End{Status: 44}})
	ops, _, err = r.List(walk)
	require.NoError(t, err)
	require.Len(t, ops, 5)
	require.Equal(t, 44, ops[4].End.Status)
	require.Equal(t, 1, reads)
}

func TestRecentIsBounded(t *testing.T) {
	var r Recent
	for i := range 3 * Keep {
		r.Ended(Operation{Key: key(t, 100_000+i), Started: time.UnixMilli(int64(100_000 + i)), End: &ledger.End{}})
	}
	require.Len(t, r.ended, Keep)
	ops, more, err := r.List(records(t, 2*Keep))
	require.NoError(t, err)
	require.True(t, more)
	require.Len(t, ops, Keep)
	require.Equal(t, key(t, 100_000+3*Keep-1), ops[Keep-1].Key)
}

func TestRecentTriesAgainAfterAnError(t *testing.T) {
	var r Recent
	broken := errors.New("broken")
	_, _, err := r.List(func(func(ledger.Entry) error) error { return broken })
	require.ErrorIs(t, err, broken)
	ops, _, err := r.List(records(t, 1))
	require.NoError(t, err)
	require.Len(t, ops, 1)
}
