package gateway

import (
	"context"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	core "github.com/libp2p/go-libp2p/core/protocol"

	"github.com/lendcli/lend/gateway/operation"
	"github.com/lendcli/lend/gateway/trial"
	"github.com/lendcli/lend/protocol"
	"github.com/lendcli/lend/protocol/name"
)

// Try runs s as if holder had sent it over a link, through the same handler: the
// same frames, the same admission, the same end. It is for an owner who wants to
// see what a peer would get, since nobody proves to be holder here. Where s.Stdin
// is set, stdin is sent; it is not read after the end, except by a Read that is
// under way. If one fails, the caller cancels ctx: it is no end of the input. The error is a *protocol.Refusal if nothing ran. When ctx is done,
// the operation is cancelled and its end returned; one that does not run yet is refused
// with CodeCancelled.
func (n *Node) Try(ctx context.Context, holder name.PeerID, s *protocol.Start, stdin io.Reader, stdout, stderr io.Writer) (protocol.Exit, error) {
	id, err := peer.Decode(holder.String())
	if err != nil {
		return protocol.Exit{}, fmt.Errorf("try: %w", err)
	}
	ours, theirs := net.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		n.handler(n.run)(&localStream{pipe: theirs, conn: localConn{peer: id}, gone: ctx.Done()})
	}()
	stop := context.AfterFunc(ctx, func() { n.cancelOf(holder, s.Operation) })
	exit, err := trial.Run(ours, s, stdin, stdout, stderr)
	stop()
	_ = ours.Close()
	<-done
	return exit, err
}

// cancelOf cancels what a holder runs under an operation ID, in any invocation.
func (n *Node) cancelOf(holder name.PeerID, op name.OperationID) {
	for _, e := range n.live.all() {
		if e.key.Holder == holder && e.key.Operation == op {
			e.op.Cancel(operation.CauseCaller)
		}
	}
}

// localStream is the gateway's end of a pipe, as a stream of a peer that nobody
// proved to be. What the handlers do not use is absent.
type localStream struct {
	network.Stream // nil
	pipe           net.Conn
	conn           localConn
	gone           <-chan struct{} // closed when the owner has given up
}

type localConn struct {
	network.Conn // nil
	peer         peer.ID
	stats        network.ConnStats
}

func (c localConn) RemotePeer() peer.ID     { return c.peer }
func (c localConn) Stat() network.ConnStats { return c.stats }

func (s *localStream) Conn() network.Conn                           { return s.conn }
func (s *localStream) Protocol() core.ID                            { return protocol.RunID }
func (s *localStream) Read(b []byte) (int, error)                   { return s.pipe.Read(b) }
func (s *localStream) Write(b []byte) (int, error)                  { return s.pipe.Write(b) }
func (s *localStream) Close() error                                 { return s.pipe.Close() }
func (s *localStream) CloseWrite() error                            { return nil } // the other end hangs up on the last frame
func (s *localStream) CloseRead() error                             { return nil }
func (s *localStream) Reset() error                                 { return s.pipe.Close() }
func (s *localStream) ResetWithError(network.StreamErrorCode) error { return s.pipe.Close() }
func (s *localStream) SetDeadline(t time.Time) error                { return s.pipe.SetDeadline(t) }
func (s *localStream) SetReadDeadline(t time.Time) error            { return s.pipe.SetReadDeadline(t) }

func (s *localStream) SetWriteDeadline(t time.Time) error { return s.pipe.SetWriteDeadline(t) }
