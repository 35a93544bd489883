package gateway

import (
	"io"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/protocol"
	"github.com/lendcli/lend/protocol/name"
	"github.com/lendcli/lend/protocol/pair"
)

// TestGuestsAreServedPairingAlone: streams of other protocols are reset unread, also of a
// peer that nobody has named since; those of the policy's peers are served as ever.
func TestGuestsAreServedPairingAlone(t *testing.T) {
	t.Parallel()
	for _, transport := range transports() {
		t.Run(transport, func(t *testing.T) {
			w := newWorld(t)
			guest := newIdentity(t)
			served := make(chan name.PeerID, 4)
			stop := w.node.Receive(func(s network.Stream, peer name.PeerID, keep func()) {
				keep()
				served <- peer
				_, _ = s.Write([]byte("hello"))
			})
			d := w.dial(guest, transport)
			for _, id := range []string{protocol.RunID, protocol.ControlID, protocol.CatalogID} {
				s, err := d.tryStream(id)
				if err != nil {
					continue // reset so soon
				}
				got, err := io.ReadAll(s)
				require.Error(t, err, id)
				require.Empty(t, got, id)
			}
			require.Zero(t, w.host.Resolves.Load())
			got, err := io.ReadAll(d.stream(pair.ID))
			require.NoError(t, err)
			require.Equal(t, "hello", string(got))
			require.Equal(t, guest.id, <-served)
			agent := w.dial(w.agent, transport)
			require.Zero(t, agent.run(w.start(w.lease(), "print", "--size=1")).finish().Status)
			stop()
			eventually(t, func() bool { return len(w.node.Status().Peers) == 1 })
			_, err = agent.tryStream(pair.ID)
			require.Error(t, err, "the protocol is gone")
		})
	}
}

// TestPairingIsRefused over a relayed link, and when the invitation is over.
func TestPairingIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	serve := func(network.Stream, name.PeerID, func()) { require.Fail(t, "served") }
	r := &reception{idle: make(chan struct{})}
	_, err := w.serveStream(pair.ID, w.node.receive(r, serve), true, nil).Read(make([]byte, 1))
	require.Error(t, err)
	r.end()
	_, err = w.serveStream(pair.ID, w.node.receive(r, serve), false, nil).Read(make([]byte, 1))
	require.Error(t, err)
}

// TestReceptionWaitsForThoseWhoAreThere: for a moment.
func TestReceptionWaitsForThoseWhoAreThere(t *testing.T) {
	t.Parallel()
	r := &reception{idle: make(chan struct{})}
	require.True(t, r.enter())
	require.True(t, r.enter())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.end()
	}()
	require.Eventually(t, func() bool { return !r.enter() || func() bool { r.leave(); return false }() }, patience, time.Millisecond)
	r.leave()
	select {
	case <-r.idle:
		require.Fail(t, "one is there")
	default:
	}
	r.leave()
	<-ended
	require.False(t, r.enter())
}
