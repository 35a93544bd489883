package door

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/multiformats/go-multiaddr"
	"github.com/stretchr/testify/require"
)

// Whoever is turned away is told so, whatever was sent meanwhile, and nothing of it is
// read: a caller takes that for certain. On a busy machine a few learn no more than that
// the connection is gone, which says nothing. spec: ID-1
func TestWhoIsTurnedAwayIsToldSo(t *testing.T) {
	t.Parallel()
	for transport, listen := range map[string]string{"tcp": "/ip4/127.0.0.1/tcp/0", "quic": "/ip4/127.0.0.1/udp/0/quic-v1"} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			d := New(rules(t, false, ""), func(peer.ID) {})
			defer d.Close()
			_, key, err := ed25519.GenerateKey(rand.Reader)
			require.NoError(t, err)
			h, err := d.Host(HostConfig{Key: key})
			require.NoError(t, err)
			defer func() { require.NoError(t, h.Close()) }()
			h.Network().SetStreamHandler(func(s network.Stream) {
				t.Error("a stream was read")
				_ = s.Reset()
			})
			m, err := multiaddr.NewMultiaddr(listen)
			require.NoError(t, err)
			require.NoError(t, Listen(h, []multiaddr.Multiaddr{m}))
			to := peer.AddrInfo{ID: h.ID(), Addrs: h.Network().ListenAddresses()}

			const tries = 50
			told := 0
			for range tries {
				err := refusal(t, to)
				var gone *network.ConnError
				if !errors.As(err, &gone) { // the datagram with it was lost; or it came before anything was sent
					t.Logf("not told: %v", err)
					continue
				}
				require.True(t, gone.Remote)
				require.Equal(t, network.ConnGated, gone.ErrorCode)
				told++
			}
			require.Greater(t, told, tries*9/10, "the word is hardly ever lost")
			require.Equal(t, uint64(tries), d.turned.Load())
			require.Empty(t, h.Network().Conns())
			require.Zero(t, d.Links(h).Streams)
		})
	}
}

// refusal connects as somebody new, sends at once, and returns what came of it.
func refusal(t *testing.T, to peer.AddrInfo) error {
	t.Helper()
	h, err := libp2p.New(libp2p.NoListenAddrs, libp2p.DisableRelay(), libp2p.DisableMetrics(), libp2p.DisableIdentifyAddressDiscovery())
	require.NoError(t, err)
	defer func() { require.NoError(t, h.Close()) }()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	err = first(ctx, h, to)
	require.Error(t, err)
	return err
}

func first(ctx context.Context, h host.Host, to peer.AddrInfo) error {
	h.Peerstore().AddAddrs(to.ID, to.Addrs, time.Minute)
	c, err := h.Network().DialPeer(ctx, to.ID)
	if err != nil {
		return err
	}
	s, err := c.NewStream(ctx)
	if err != nil {
		return err
	}
	_ = s.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := s.Write(make([]byte, 4096)); err != nil {
		return err
	}
	_, err = s.Read(make([]byte, 1))
	return err
}
