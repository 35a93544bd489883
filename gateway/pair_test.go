package gateway

import (
	"errors"
	"io"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/gateway/ledger"
	"github.com/lendcli/lend/protocol"
	"github.com/lendcli/lend/protocol/name"
	"github.com/lendcli/lend/protocol/pair"
)

// refusals is how many of a code the ledger has of a peer, or of all of them.
func (w *world) refusals(code protocol.Code, peer name.PeerID) (n uint64) {
	w.t.Helper()
	w.node.refusals.Flush()
	require.NoError(w.t, w.ledger.Walk(func(e ledger.Entry) error {
		if r := e.Refusal; r != nil && r.Reason == code.String() && r.Peer == peer {
			n += max(1, r.Count)
		}
		return nil
	}))
	return n
}

// TestAStartThatRanIsNotRefused: it settled before its stream was served, and by then
// something denies its end.
func TestAStartThatRanIsNotRefused(t *testing.T) {
	for _, err := range []error{&stateError{ledger.StateNone}, &protocol.Refusal{Code: protocol.CodeLeaseRevoked}, errors.New("other")} {
		require.Equal(t, protocol.CodeOutcomeUnknown, refuse(untold(err)).Code)
	}
}

// TestAdmittedStreamsAreNeverResetAsRefused: the caller would believe that nothing ran.
// spec: CODE-4
func TestAdmittedStreamsAreNeverResetAsRefused(t *testing.T) {
	t.Parallel()
	for _, code := range append(protocol.Codes(), 9999) {
		s := &numbered{}
		(&call{Stream: s}).reset(code)
		require.Equal(t, protocol.ResetBase+network.StreamErrorCode(code), s.code)
		(&call{Stream: s, admitted: true}).reset(code)
		if code.CanEnd() {
			require.Equal(t, protocol.ResetBase+network.StreamErrorCode(code), s.code)
		} else {
			require.Equal(t, protocol.ResetBase+network.StreamErrorCode(protocol.CodeInternal), s.code)
		}
	}

	w := newWorld(t)
	for argument, want := range map[string]bool{"--size=1": true, "--size=one": false} {
		admitted := make(chan bool, 1)
		s := w.serveStream(protocol.RunID, func(c *call) error {
			err := w.node.run(c)
			admitted <- c.admitted
			return err
		}, false, nil)
		require.NoError(t, protocol.NewWriter(s).WriteFrame(w.start(w.lease(), "print", argument)))
		f, err := protocol.NewReader(s, protocol.Caller).Read()
		require.NoError(t, err)
		_, accepted := f.(*protocol.Accepted)
		require.Equal(t, want, accepted)
		require.NoError(t, s.Close())
		require.Equal(t, want, <-admitted)
	}
}

// numbered is a stream that keeps the number of its reset.
type numbered struct {
	network.Stream
	code network.StreamErrorCode
}

func (s *numbered) ResetWithError(c network.StreamErrorCode) error { s.code = c; return nil }

// TestGuestsAreServedPairingAlone: streams of other protocols are reset unread, also of a
// peer that nobody has named since; those of the policy's peers are served as ever. spec: CODE-4
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
				var got []byte
				if err == nil { // else it was reset so soon
					got, err = io.ReadAll(s)
				}
				require.Empty(t, got, id)
				var reset *network.StreamError
				require.ErrorAs(t, err, &reset, id)
				require.True(t, reset.Remote, id)
				require.Equal(t, protocol.ResetBase+network.StreamErrorCode(protocol.CodeDenied), reset.ErrorCode, id)
			}
			require.Equal(t, uint64(3), w.refusals(protocol.CodeDenied, guest.id), "each is counted")
			require.Empty(t, w.node.Status().Penalties, "and costs nothing: it may pair")
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
