package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/gateway/admin"
	"github.com/lendcli/lend/gateway/early"
	"github.com/lendcli/lend/gateway/ledger"
	"github.com/lendcli/lend/policy"
	"github.com/lendcli/lend/protocol/name"
)

// What was cancelled before it started is shown whether there is a policy or none, as
// when its file was removed.
func TestNeverStartedWithoutAPolicy(t *testing.T) {
	holder, err := name.PeerIDFromKey(make([]byte, 32))
	require.NoError(t, err)
	operation, err := name.ParseOperationID("op-that-never-starts")
	require.NoError(t, err)
	s := &serving{cancels: early.Memory(), side: &ownersSide{}}
	now := time.Now()
	require.NoError(t, s.cancels.Add(ledger.Key{Holder: holder, Operation: operation}, now.Add(time.Minute), now))
	all := s.neverStarted(nil)
	require.Len(t, all, 1)
	require.Equal(t, admin.StateNotStarted, all[0].State)
	require.Empty(t, all[0].PeerName)

	p, err := policy.Parse("p", []byte("policy: 1\npeers: {laptop: "+holder.String()+"}\n"))
	require.NoError(t, err)
	s.side.policy.Store(p)
	require.Equal(t, "laptop", s.neverStarted(nil)[0].PeerName)
}
