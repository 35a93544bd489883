package client

import (
	"bytes"
	"sync/atomic"
	"testing"

	"github.com/libp2p/go-libp2p/core/network"
	core "github.com/libp2p/go-libp2p/core/protocol"
	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/protocol"
)

// resetsWith resets a stream whose first frame was read, as a gateway does.
func resetsWith(code protocol.Code) func(*served) {
	return func(v *served) { _ = v.ResetWithError(protocol.ResetBase + network.StreamErrorCode(code)) }
}

// shuns resets each stream of a protocol unread, and counts them.
func (f *fake) shuns(id core.ID, code network.StreamErrorCode) *atomic.Int32 {
	n := new(atomic.Int32)
	f.host.SetStreamHandler(id, func(s network.Stream) {
		n.Add(1)
		_ = s.ResetWithError(code)
	})
	return n
}

// Whatever of the reset comes first, and whoever is told: a writer of input, or the reader.
// spec: CODE-4
func TestARefusalByResetIsARefusal(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) { //nolint:thelper // the test itself
		c := f.dial(t)
		for code, status := range map[protocol.Code]int{
			protocol.CodeDenied: 126, protocol.CodePolicyDenied: 126, protocol.CodeCommandUnknown: 127,
		} {
			n := f.shuns(protocol.RunID, protocol.ResetBase+network.StreamErrorCode(code))
			for i := range 20 {
				cmd := list(c)
				if i%2 == 0 {
					cmd.Stdin = bytes.NewReader(make([]byte, 300000))
				}
				err := cmd.Run()
				var refused *RefusedError
				require.ErrorAs(t, err, &refused)
				require.Equal(t, code, refused.Code)
				require.NotErrorIs(t, err, ErrOutcomeUnknown)
				require.Equal(t, status, ExitStatus(err))
				require.Equal(t, int32(i+1), n.Load(), "it is final")
			}
		}
		require.Empty(t, f.seen())
	})
}

// spec: CODE-2, CODE-4
func TestARefusalByResetThatMayPassIsWaitedFor(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) { //nolint:thelper // the test itself
		c := f.dial(t)
		f.then(resetsWith(protocol.CodeBusy), exits(&protocol.Exit{}))
		require.NoError(t, list(c).Run())
		starts := f.seen()
		require.Len(t, starts, 2)
		require.Equal(t, starts[0], starts[1])
	})
}

// A code that an end may carry, one that nobody knows, and one of another kind leave it
// open whether the command runs: for them it is as for a reset without a number.
// spec: CODE-3, CODE-4
func TestAnotherResetIsUnknown(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) { //nolint:thelper // the test itself
		f.config.Wait = -1 // not at all
		c := f.dial(t)
		base := network.StreamErrorCode(protocol.ResetBase)
		codes := []network.StreamErrorCode{
			network.StreamErrorCode(protocol.CodeDenied), // without the base
			base, base + 9999, 2*base + network.StreamErrorCode(protocol.CodeDenied), network.StreamGarbageCollected,
		}
		for _, code := range protocol.Codes() {
			if code.CanEnd() && code != protocol.CodeSupplanted {
				codes = append(codes, base+network.StreamErrorCode(code))
			}
		}
		for _, code := range codes {
			f.then(func(v *served) { _ = v.ResetWithError(code) })
			err := list(c).Run()
			require.ErrorIs(t, err, ErrOutcomeUnknown, "%x", code)
			require.Equal(t, 255, ExitStatus(err), "%x", code)
		}
	})
}

// What is refused after a request that may have been read says nothing about that one.
// spec: CODE-4
func TestARefusalByResetAfterALostRequestIsUnknown(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) { //nolint:thelper // the test itself
		c := f.dial(t)
		f.then(resets, resetsWith(protocol.CodeDenied))
		err := list(c).Run()
		require.ErrorIs(t, err, ErrOutcomeUnknown)
		require.Equal(t, 255, ExitStatus(err))
		require.Len(t, f.seen(), 2, "it is final")
	})
}

// spec: CODE-4, END-3
func TestAResetAfterAcceptedIsUnknown(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) { //nolint:thelper // the test itself
		c := f.dial(t)
		out := &firstWrite{wrote: make(chan struct{})}
		short := acceptedFrame()
		short.Limits.Detached = 0
		f.then(func(v *served) {
			v.send(short, stdout(0, "partial"))
			<-out.wrote
			resetsWith(protocol.CodeDenied)(v)
		}, resetsWith(protocol.CodeDenied))
		cmd := list(c)
		cmd.Stdout = out
		err := cmd.Run()
		require.ErrorIs(t, err, ErrOutcomeUnknown)
		require.Equal(t, 255, ExitStatus(err))
		require.Equal(t, "partial", out.String())
	})
}

// On a new connection, where the first word is awaited, and on one that has answered.
// spec: CODE-4
func TestAQuestionThatIsRefusedByReset(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) { //nolint:thelper // the test itself
		c := f.dial(t)
		denied := protocol.ResetBase + network.StreamErrorCode(protocol.CodeDenied)
		for _, warm := range []bool{false, true} {
			if warm {
				f.then(exits(&protocol.Exit{}))
				require.NoError(t, list(c).Run())
			}
			asked, listed := f.shuns(protocol.ControlID, denied), f.shuns(protocol.CatalogID, denied)
			for title, ask := range map[string]func() error{
				"catalogue": func() error { _, err := c.Catalog(t.Context()); return err },
				"status":    func() error { _, err := c.Status(t.Context(), testKey(f)); return err },
				"cancel":    func() error { _, err := c.Cancel(t.Context(), testKey(f), 0); return err },
				"revoke":    func() error { _, err := c.Revoke(t.Context(), []byte("envelope")); return err },
			} {
				err := ask()
				var refused *RefusedError
				require.ErrorAs(t, err, &refused, title)
				require.Equal(t, protocol.CodeDenied, refused.Code)
				require.NotErrorIs(t, err, ErrUnreachable, title)
				require.NotEmpty(t, refused.Code.Advice())
			}
			require.Equal(t, []int32{3, 1}, []int32{asked.Load(), listed.Load()}, "each is final")
		}
	})
}

// spec: CODE-4
func TestAttachingThatIsRefusedByReset(t *testing.T) {
	f := newFixture(overTCP)
	c := f.dial(t)
	n := f.shuns(protocol.RunID, protocol.ResetBase+network.StreamErrorCode(protocol.CodeDenied))
	err := c.Attach(t.Context(), "op-0123456789abcdef").Run()
	var refused *RefusedError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, int32(1), n.Load(), "it is final")
}
