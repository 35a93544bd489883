package client

import (
	"crypto/ed25519"
	"crypto/rand"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/protocol"
)

// A caller that has lost its process can still stop what it started, with a lease that is
// over, and is told what it was.
func TestCancelByID(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) { //nolint:thelper // the test itself
		asked := make(chan protocol.ControlRequest, 1)
		f.onControl(func(q protocol.ControlRequest) protocol.ControlReply {
			asked <- q
			return &protocol.CancelReply{State: protocol.OperationRunning}
		})
		f.config.Now = func() time.Time { return time.Now().Add(100 * time.Hour) }
		c := f.dial(t)
		state, err := c.Cancel(t.Context(), testKey(f), time.Second)
		require.NoError(t, err)
		require.Equal(t, protocol.OperationRunning, state)
		got, ok := (<-asked).(*protocol.CancelRequest)
		require.True(t, ok)
		require.Equal(t, testKey(f), got.OperationKey)
		require.Equal(t, time.Second, got.Grace)
		require.NotEmpty(t, got.Lease)
		f.onControl(func(protocol.ControlRequest) protocol.ControlReply {
			return (&protocol.Refusal{Code: protocol.CodeOperationUnknown}).Frame()
		})
		_, err = c.Cancel(t.Context(), testKey(f), 0)
		var refused *RefusedError
		require.ErrorAs(t, err, &refused)
		require.Equal(t, protocol.CodeOperationUnknown, refused.Code)
		f.onControl(func(protocol.ControlRequest) protocol.ControlReply { return &protocol.RevokeReply{} })
		_, err = c.Cancel(t.Context(), testKey(f), 0)
		require.Error(t, err)
	})
}

// The lease only says where the gateway is: it may be another holder's, and over.
func TestRevokeWithAnothersLease(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) { //nolint:thelper // the test itself
		f.onControl(func(protocol.ControlRequest) protocol.ControlReply { return &protocol.RevokeReply{Stopped: 3} })
		_, key, err := ed25519.GenerateKey(rand.Reader)
		require.NoError(t, err)
		f.config.Key, f.config.Now = key, func() time.Time { return time.Now().Add(100 * time.Hour) }
		c := f.dial(t)
		require.NotEqual(t, f.lease.Holder, c.Holder())
		reply, err := c.Revoke(t.Context(), []byte("envelope"))
		require.NoError(t, err)
		require.Equal(t, uint32(3), reply.Stopped)
		f.onControl(func(protocol.ControlRequest) protocol.ControlReply {
			return (&protocol.Refusal{Code: protocol.CodeDenied}).Frame()
		})
		_, err = c.Revoke(t.Context(), []byte("envelope"))
		var refused *RefusedError
		require.ErrorAs(t, err, &refused)
		require.Equal(t, protocol.CodeDenied, refused.Code)
	})
}
