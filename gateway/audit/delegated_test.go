package audit

import (
	"context"
	"crypto/sha256"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/gateway/ledger"
	"github.com/lendcli/lend/protocol/name"
)

// A start under a lease that was passed on says by whom, and its end knows it.
func TestStartOfALeaseThatWasPassedOn(t *testing.T) {
	b := newBook(t)
	out, err := b.Reserve(ledger.Claim{
		Key: ledger.Key{
			Issuer: peerID(1), Invocation: must(name.ParseInvocationID("inv-1")), Holder: peerID(3),
			Operation: must(name.ParseOperationID("op-0000000000000001")),
		},
		Digest: sha256.Sum256(nil), Lease: [16]byte{8}, MaxOperations: 1, Frozen: []byte("{}"),
		Above: []ledger.Link{{Lease: [16]byte{7}, Holder: peerID(2), MaxOperations: 1}},
	})
	require.NoError(t, err)
	require.NoError(t, out.Reservation.Start(context.Background(), ledger.Start{
		LeaseNotAfter: b.now.Add(time.Hour), Connector: must(name.ParseConnectorKey("fx")), Version: must(name.ParseVersion("1.0.0")),
		Command: must(name.ParseCommand("issue.list")), Audit: []byte("{}"),
	}))
	b.fill("a")
	b.end(out.Reservation, 77)
	b.fill("b")
	older, _, err := b.view(Filter{Operation: "op-0000000000000001", Kinds: []Kind{KindEnd}}).Newest(1)
	require.NoError(t, err)
	require.Len(t, older, 1, "the start is in another segment")
	var start, end *Record
	for _, r := range all(t, b.view(Filter{Operation: "op-0000000000000001"})) {
		switch r.Kind {
		case KindStart:
			start = &r
		case KindEnd:
			end = &r
		default:
		}
	}
	require.Equal(t, []passedOn{{"07000000000000000000000000000000", peerID(2).String()}}, start.PassedOn)
	require.Equal(t, []string{"08000000000000000000000000000000", peerID(3).String()}, []string{start.Lease, start.Peer})
	require.Equal(t, []string{start.Lease, start.Peer, "issue.list"}, []string{end.Lease, end.Peer, end.Command})
	require.Nil(t, end.PassedOn)
	require.Equal(t, *end, older[0])
}
