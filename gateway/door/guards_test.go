package door

import (
	"context"
	"crypto/rand"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/stretchr/testify/require"
)

func TestDebtIsForgottenWhenNothingIsLeft(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for title, c := range map[string]struct {
		debt debt
		want bool
	}{
		"nothing":         {debt{}, true},
		"refused":         {debt{until: now.Add(time.Second)}, false},
		"owes":            {debt{owed: now.Add(time.Second)}, false},
		"owed":            {debt{owed: now, last: now}, true},
		"a-penalty-ago":   {debt{times: 1, until: now.Add(-time.Minute), last: now.Add(-time.Hour)}, false},
		"long-ago":        {debt{times: 1, until: now.Add(-penaltyMemory - 1), last: now.Add(-time.Hour)}, true},
		"denied-meantime": {debt{times: 1, until: now.Add(-penaltyMemory - 1), last: now.Add(-time.Minute)}, false},
	} {
		require.Equal(t, c.want, c.debt.forgotten(now), title)
	}
}

// TestStrangersAreNotNamed: those whose key has no name among them.
func TestStrangersAreNotNamed(t *testing.T) {
	t.Parallel()
	d := New(rules(t, true, ""), func(peer.ID) {})
	defer d.Close()
	named, _ := someone(t, 1)
	other, _ := someone(t, 2)
	require.False(t, d.stranger(named))
	require.True(t, d.stranger(other))
	_, public, err := crypto.GenerateECDSAKeyPair(rand.Reader)
	require.NoError(t, err)
	nameless, err := peer.IDFromPublicKey(public)
	require.NoError(t, err)
	_, ok := PeerName(nameless)
	require.False(t, ok)
	require.True(t, d.stranger(nameless))
	require.False(t, d.enter(nameless), "only keys that have a name come in")
	require.Equal(t, uint64(1), d.turned.Load())
	d.Invite(true)
	require.True(t, d.admit(other))
	require.False(t, d.admit(nameless), "nor as a guest")
}

// TestPermitThatCameInBetween: who gives up when the permit was given already passes it
// on.
func TestPermitThatCameInBetween(t *testing.T) {
	t.Parallel()
	q := NewPermits(1)
	id, _ := someone(t, 1)
	require.NoError(t, q.Acquire(t.Context(), id))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Error(t, q.Acquire(ctx, id))
	require.False(t, q.leave(id, make(chan struct{})), "who does not wait has none to give up")
	q.Release()
	require.NoError(t, q.Acquire(t.Context(), id))
	q.Release()
}
