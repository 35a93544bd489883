package tally

import (
	"crypto/ed25519"
	"encoding/binary"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/gateway/ledger"
	"github.com/lendcli/lend/protocol"
	"github.com/lendcli/lend/protocol/name"
)

func peer(t *testing.T, n int) name.PeerID {
	t.Helper()
	var seed [ed25519.SeedSize]byte
	binary.BigEndian.PutUint64(seed[:], uint64(n))
	id, err := name.PeerIDFromKey(ed25519.NewKeyFromSeed(seed[:]).Public().(ed25519.PublicKey))
	require.NoError(t, err)
	return id
}

func TestRefusalsAreSummedUp(t *testing.T) {
	t.Parallel()
	var written []ledger.Refusal
	r := Refusals{Write: func(x ledger.Refusal) error { written = append(written, x); return errors.New("a full disk") }}
	first := time.UnixMilli(1_800_000_000_000)
	for i := range 100 {
		at := first.Add(time.Duration(i) * time.Second)
		r.Add(protocol.CodeDenied, ledger.Refusal{At: at, Reason: "DENIED", Peer: peer(t, 1), Detail: "why"})
	}
	r.Add(protocol.CodeBusy, ledger.Refusal{Reason: "BUSY", Peer: peer(t, 1)})
	require.Len(t, written, 2, "the first of each kind")
	require.Equal(t, "why", written[0].Detail)
	r.Flush()
	require.Len(t, written, 3)
	require.Equal(t, ledger.Refusal{
		Reason: "DENIED", Peer: peer(t, 1), Count: 99, Since: first.Add(time.Second), At: first.Add(99 * time.Second),
	}, written[2])
	r.Flush()
	require.Len(t, written, 3)
}

func TestKindsAreBounded(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var count uint64
	r := Refusals{Write: func(x ledger.Refusal) error {
		mu.Lock()
		defer mu.Unlock()
		count += max(1, x.Count)
		return nil
	}}
	var all sync.WaitGroup
	const each = 400
	for i := range 4 {
		all.Go(func() {
			for j := range each {
				r.Add(protocol.CodeDenied, ledger.Refusal{Peer: peer(t, i*each+j)})
			}
		})
	}
	all.Wait()
	require.LessOrEqual(t, len(r.kinds), Most+1)
	r.Flush()
	require.Equal(t, uint64(4*each), count, "none is lost")
}
