package ledger

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/protocol/name"
)

// TestGrantsAreKept: a frozen grant is read once, one of another place each time, and
// none that is large is held in memory.
func TestGrantsAreKept(t *testing.T) {
	t.Parallel()
	l := mustOpen(t, ledgerDir(t))
	start := func(n, size int) int64 {
		c := testClaim(t, n)
		c.Invocation = must(name.ParseInvocationID("run-" + string(rune('a'+n))))
		c.Frozen = bytes.Repeat([]byte{byte('a' + n)}, size)
		out, err := l.Reserve(c)
		require.NoError(t, err)
		require.NoError(t, out.Reservation.Start(t.Context(), testStart()))
		for range 2 {
			frozen, ok, err := l.Frozen(c.Issuer, c.Invocation, c.Holder)
			require.NoError(t, err)
			require.True(t, ok)
			require.Equal(t, c.Frozen, frozen)
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.views.scopes[l.scopeHash(c.Issuer, c.Invocation, c.Holder)].frozen
	}
	small, large := start(1, 100), start(2, keptGrantSize+1)
	kept := l.grants.place(small).Load()
	require.Equal(t, small, kept.at)
	require.Len(t, kept.frozen, 100)
	if g := l.grants.place(large).Load(); g != nil {
		require.NotEqual(t, large, g.at)
	}

	mark := &grant{at: small, frozen: []byte("kept")}
	l.grants.place(small).Store(mark)
	frozen, err := l.grantAt(small)
	require.NoError(t, err)
	require.Equal(t, mark.frozen, frozen, "it is not read again")
	l.grants.place(small).Store(&grant{at: small + 1, frozen: []byte("another's")})
	frozen, err = l.grantAt(small)
	require.NoError(t, err)
	require.Equal(t, bytes.Repeat([]byte{'b'}, 100), frozen, "what another place has is not taken for it")
}
