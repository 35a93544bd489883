package chain

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lendcli/lend/gateway/ledger/folder"
	"github.com/lendcli/lend/gateway/ledger/segment"
)

func hashes(seed byte, n int) []folder.Hash {
	out := make([]folder.Hash, n)
	for i := range out {
		out[i] = folder.Hash{byte(i >> 16), byte(i >> 8), byte(i), seed}
	}
	return out
}

// spec: LEDGER-31
func TestClosedRoundTrip(t *testing.T) {
	t.Parallel()
	first, second := hashes(1, closedFrame+1), hashes(2, 3)
	b, tree := AppendClosed(first, 0, segment.Tree{})
	require.Equal(t, uint64(2), tree.Size())
	more, both := AppendClosed(second, int64(len(b)), tree)
	all, got, err := decodeClosed(append(b, more...))
	require.NoError(t, err)
	require.Equal(t, both.Root(), got.Root())
	require.Equal(t, Merge(first, second), all)
	require.True(t, slices.IsSortedFunc(all, folder.Hash.Compare))
	for _, bad := range [][]byte{b[:len(b)-1], append(slices.Clone(b), 1), more} {
		_, _, err := decodeClosed(bad)
		require.ErrorIs(t, err, segment.ErrCorrupt)
	}
	_, _, err = decodeClosed(segment.AppendFrame(nil, []byte("no hashes"), 0, 0))
	require.ErrorIs(t, err, segment.ErrCorrupt)
}

func TestSortedSets(t *testing.T) {
	t.Parallel()
	set := rapid.Custom(func(rt *rapid.T) []folder.Hash {
		out := []folder.Hash{}
		for _, b := range rapid.SliceOfDistinct(rapid.Byte(), rapid.ID[byte]).Draw(rt, "bytes") {
			out = append(out, folder.Hash{b})
		}
		slices.SortFunc(out, folder.Hash.Compare)
		return out
	})
	rapid.Check(t, func(rt *rapid.T) {
		a, b := set.Draw(rt, "a"), set.Draw(rt, "b")
		both := Merge(a, b)
		require.True(rt, slices.IsSortedFunc(both, folder.Hash.Compare))
		require.Len(rt, both, len(a)+len(b))
		for n := range 256 {
			h := folder.Hash{byte(n)}
			require.Equal(rt, slices.Contains(a, h) || slices.Contains(b, h), Contains(both, h))
		}
	})
}
