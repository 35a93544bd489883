package door

import (
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
)

// Bounds of a farewell: how long a connection that was turned away may stay until the
// other end has heard it, and how many bytes of it are thrown away meanwhile.
const (
	farewellTimeout = 2 * time.Second
	farewellBytes   = 4 << 20
)

// polite is a muxer whose connections say for certain why they were not taken. A socket
// that is closed while bytes are unread, or arrive later, is reset, and what was written
// last can be lost with it. Their streams take turns.
type polite struct{ network.Multiplexer }

func (m polite) NewConn(c net.Conn, isServer bool, scope network.PeerScope) (network.MuxedConn, error) {
	if !isServer {
		return m.Multiplexer.NewConn(c, isServer, scope)
	}
	l := &leaving{Conn: c}
	t := newTurns()
	muxed, err := m.Multiplexer.NewConn(countedConn{l, t}, isServer, scope)
	if err != nil {
		return nil, err
	}
	return &politeConn{MuxedConn: &fairConn{muxed, t}, under: l}, nil
}

type politeConn struct {
	network.MuxedConn
	under *leaving
}

// CloseWithError says the code and, if that turns the other end away, waits for it to
// leave.
func (c *politeConn) CloseWithError(code network.ConnErrorCode) error {
	if code == network.ConnGated {
		c.under.wait.Store(true)
	}
	return c.MuxedConn.CloseWithError(code)
}

// leaving is a connection whose Close lets the other end leave first, if wait is set.
type leaving struct {
	net.Conn
	wait atomic.Bool
}

func (l *leaving) Close() error {
	if l.wait.Swap(false) {
		_ = l.SetReadDeadline(time.Now().Add(farewellTimeout))
		_, _ = io.CopyN(io.Discard, l.Conn, farewellBytes)
	}
	return l.Conn.Close()
}
