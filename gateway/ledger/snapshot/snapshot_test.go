package snapshot

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lendcli/lend/gateway/ledger/folder"
)

var testTime = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func keys(t *testing.T) *folder.Keys {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "ledger")
	unlock, _, err := folder.Enter(dir)
	require.NoError(t, err)
	require.NoError(t, folder.Folder{Path: dir}.Create(testTime))
	require.NoError(t, unlock())
	k, err := folder.ReadKeys(dir)
	require.NoError(t, err)
	return &k
}

func sample() *Index {
	x := New(100)
	x.AddStart(Start{101, 40, folder.Hash{1}}, folder.Hash{2}, testTime, true)
	x.AddLease(folder.Hash{3})
	x.AddStart(Start{103, 400, folder.Hash{4}}, folder.Hash{2}, testTime.Add(time.Hour), true)
	x.AddLease(folder.Hash{3})
	x.AddStart(Start{104, 500, folder.Hash{5}}, folder.Hash{6}, testTime, false)
	x.AddLease(folder.Hash{7})
	x.AddEnd(End{Of: 7, Offset: 300})
	x.AddEnd(End{Of: 101, Offset: 600})
	x.Seen(testTime)
	x.Seen(testTime.Add(-time.Hour))
	x.Seal(6, 700, [32]byte{9})
	return x
}

// spec: LEDGER-32
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	k, x := keys(t), sample()
	require.Equal(t, testTime.UnixMilli(), x.High)
	require.Equal(t, testTime.Add(time.Hour).UnixMilli(), x.Until)
	require.Equal(t, Scope{Until: x.Until, Frozen: 40}, x.Scopes[folder.Hash{2}])
	require.Equal(t, int64(-1), x.Scopes[folder.Hash{6}].Frozen)
	require.Equal(t, uint32(2), x.Leases[folder.Hash{3}])
	i, ok := x.Find(103)
	require.True(t, ok)
	require.Equal(t, 1, i)
	_, ok = x.Find(102)
	require.False(t, ok)
	b, err := x.Encode([16]byte{1}, k)
	require.NoError(t, err)
	got, err := Decode(b, [16]byte{1}, k)
	require.NoError(t, err)
	require.Equal(t, x, got)
	again, err := got.Encode([16]byte{1}, k)
	require.NoError(t, err)
	require.Equal(t, b, again)
}

// spec: LEDGER-32
func TestWhatIsNoSnapshot(t *testing.T) {
	t.Parallel()
	k, x := keys(t), sample()
	b, err := x.Encode([16]byte{1}, k)
	require.NoError(t, err)
	_, err = Decode(b, [16]byte{2}, k)
	require.ErrorIs(t, err, errDamaged, "another ledger")
	_, err = Decode(b, [16]byte{1}, keys(t))
	require.ErrorIs(t, err, errDamaged, "another key")
	for at := range b {
		bad := append([]byte(nil), b...)
		bad[at] ^= 1
		_, err = Decode(bad, [16]byte{1}, k)
		require.ErrorIs(t, err, errDamaged)
		_, err = Decode(b[:at], [16]byte{1}, k)
		require.ErrorIs(t, err, errDamaged)
	}
	// Counts that do not fit, by somebody who has the key.
	for _, at := range []int{headSize - 32, headSize - 25, headSize - 8} {
		bad := append([]byte(nil), b[:len(b)-macSize]...)
		bad[at]++
		_, err = Decode(append(bad, sum(k, bad)...), [16]byte{1}, k)
		require.ErrorIs(t, err, errDamaged)
	}
	x.Seal(6, 1<<32, [32]byte{})
	_, err = x.Encode([16]byte{1}, k)
	require.ErrorIs(t, err, errTooLarge)
}

func TestAnyIndex(t *testing.T) {
	t.Parallel()
	k := keys(t)
	rapid.Check(t, func(rt *rapid.T) {
		x := New(rapid.Uint64Range(0, 1<<40).Draw(rt, "first"))
		next := x.First
		hash := rapid.Custom(func(t *rapid.T) folder.Hash { return folder.Hash{rapid.Byte().Draw(t, "hash")} })
		for range rapid.IntRange(0, 20).Draw(rt, "records") {
			next += rapid.Uint64Range(1, 9).Draw(rt, "gap")
			off := rapid.Int64Range(0, 1<<32-1).Draw(rt, "offset")
			if rapid.Bool().Draw(rt, "start") {
				x.AddStart(Start{next, off, hash.Draw(rt, "op")}, hash.Draw(rt, "scope"), testTime, rapid.Bool().Draw(rt, "frozen"))
				x.AddLease(hash.Draw(rt, "lease"))
			} else {
				x.AddEnd(End{rapid.Uint64().Draw(rt, "of"), off})
			}
		}
		x.Seal(next-x.First, 1000, [32]byte{1})
		b, err := x.Encode([16]byte{1}, k)
		require.NoError(rt, err)
		got, err := Decode(b, [16]byte{1}, k)
		require.NoError(rt, err)
		require.ElementsMatch(rt, x.Starts, got.Starts)
		require.ElementsMatch(rt, x.Ends, got.Ends)
		require.Equal(rt, x.Scopes, got.Scopes)
		require.Equal(rt, x.Leases, got.Leases)
	})
}
