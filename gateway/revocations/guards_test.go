package revocations

import (
	"crypto/ed25519"
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/lease/revocation"
	"github.com/lendcli/lend/protocol/name"
)

func guardPeer(t *testing.T, n uint32) name.PeerID {
	t.Helper()
	seed := make([]byte, ed25519.SeedSize)
	binary.BigEndian.PutUint32(seed, n)
	id, err := name.PeerIDFromKey(ed25519.NewKeyFromSeed(seed).Public().(ed25519.PublicKey))
	require.NoError(t, err)
	return id
}

// TestIllegibleLinkIsTheLastOne: a link of which a part cannot be read is taken for the
// lease that the record is of, and not for one of nobody.
func TestIllegibleLinkIsTheLastOne(t *testing.T) {
	t.Parallel()
	holder, issuer, other := guardPeer(t, 1), guardPeer(t, 2), guardPeer(t, 3)
	last := lease.Subject{Lease: lease.ID{1}, Holder: holder, Issuer: issuer}
	set := func(e ...revocation.Entry) lease.RevocationChecker {
		s, err := revocation.New(e...)
		require.NoError(t, err)
		return s
	}
	id := lease.ID{9}.String()
	legible := fmt.Sprintf("%s:%d:%s:%s", id, time.Now().UnixMilli(), other, other)
	for title, link := range map[string]string{
		"holder": fmt.Sprintf("%s:1:nobody:%s", id, other), "issuer": fmt.Sprintf("%s:1:%s:nobody", id, other),
		"identifier": "x:1", "time": id + ":x", "parts": id,
	} {
		for _, e := range []revocation.Entry{{Holder: holder}, {Issuer: issuer}, {Lease: lease.ID{1}}} {
			require.True(t, Past(set(e), last, link), "%s %+v", title, e)
			require.True(t, Past(set(e), last, legible+" "+link), "%s %+v", title, e)
		}
		require.False(t, Past(set(), last, link), "%s: nothing was revoked", title)
	}
	require.False(t, Past(set(revocation.Entry{Holder: holder}), last, legible), "a link of others says nothing of this holder")
	require.True(t, Past(nil, last, legible))
	require.True(t, Past(nil, last, ""))
}

// TestIssuersTogetherAreBounded: many issuers, each with few.
func TestIssuersTogetherAreBounded(t *testing.T) {
	t.Parallel()
	each := MaxOfIssuer / 2
	var entries []revocation.Entry
	for n := uint32(0); len(entries) < MaxOfIssuers; n++ {
		issuer := guardPeer(t, 10+n)
		for i := 0; i < each && len(entries) < MaxOfIssuers; i++ {
			e := revocation.Entry{Issuer: issuer, Lease: lease.ID{1}}
			binary.BigEndian.PutUint64(e.Lease[8:], uint64(len(entries)+1))
			entries = append(entries, e)
		}
	}
	full, err := revocation.New(entries...)
	require.NoError(t, err)
	few, err := revocation.New(entries[:each]...)
	require.NoError(t, err)
	var s Store
	s.set.Store(full)
	require.True(t, s.crowded(guardPeer(t, 1), true))
	s.set.Store(few)
	require.False(t, s.crowded(guardPeer(t, 1), true))
}
