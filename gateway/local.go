package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	core "github.com/libp2p/go-libp2p/core/protocol"

	"github.com/lendcli/lend/gateway/operation"
	"github.com/lendcli/lend/protocol"
	"github.com/lendcli/lend/protocol/name"
)

// Try runs s as if holder had sent it over a link, through the same handler: the
// same frames, the same admission, the same end. It is for an owner who wants to
// see what a peer would get, since nobody proves to be holder here. Where s.Stdin
// is set, stdin is sent; it is not read after the end, except by a Read that is
// under way. The error is a *protocol.Refusal if nothing ran. When ctx is done,
// the operation is cancelled and its end returned.
func (n *Node) Try(ctx context.Context, holder name.PeerID, s *protocol.Start, stdin io.Reader, stdout, stderr io.Writer) (protocol.Exit, error) {
	id, err := peer.Decode(holder.String())
	if err != nil {
		return protocol.Exit{}, fmt.Errorf("try: %w", err)
	}
	ours, theirs := net.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		n.handler(n.run)(&localStream{pipe: theirs, conn: localConn{peer: id}})
	}()
	stop := context.AfterFunc(ctx, func() { n.cancelOf(holder, s.Operation) })
	exit, err := follow(ours, s, stdin, stdout, stderr)
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

var errNoEnd = errors.New("the operation has no end")

// localCaller is the caller's side of one run stream.
type localCaller struct {
	frames         *protocol.Reader
	w              *protocol.Writer
	stdin          io.Reader
	stdout, stderr io.Writer
	taken          protocol.Ack // of the outputs
	closed         [3]bool      // by Stream: nobody reads it any more
	sending        sync.Once

	mu     sync.Mutex // guards window and ended
	window *protocol.Window
	room   *sync.Cond // on mu
	ended  bool
}

func follow(c net.Conn, s *protocol.Start, stdin io.Reader, stdout, stderr io.Writer) (protocol.Exit, error) {
	l := &localCaller{
		frames: protocol.NewReader(c, protocol.Caller), w: protocol.NewWriter(c),
		stdin: stdin, stdout: stdout, stderr: stderr, window: protocol.NewWindow(0),
	}
	l.room = sync.NewCond(&l.mu)
	defer l.end()
	if err := l.w.WriteFrame(s); err != nil {
		return protocol.Exit{}, fmt.Errorf("try: %w", err)
	}
	for {
		f, err := l.frames.Read()
		if err != nil {
			return protocol.Exit{}, errors.Join(errNoEnd, err)
		}
		switch f := f.(type) {
		case *protocol.Refused:
			return protocol.Exit{}, f.Err()
		case *protocol.Exit:
			return *f, l.w.WriteFrame(&protocol.ExitAck{})
		}
		if err := l.take(f, s.Stdin); err != nil {
			return protocol.Exit{}, errors.Join(errNoEnd, err)
		}
	}
}

func (l *localCaller) take(f protocol.Frame, stdin bool) error {
	switch f := f.(type) {
	case *protocol.Accepted:
		if stdin {
			l.sending.Do(func() { go l.send() }) // ends with the pipe, or with stdin
		}
	case *protocol.Ack:
		l.mu.Lock()
		defer l.mu.Unlock()
		defer l.room.Broadcast()
		return l.window.Ack(f.Stdin)
	case *protocol.StdinClosed:
		l.end()
	case *protocol.Data:
		return l.output(f)
	}
	return nil
}

func (l *localCaller) output(f *protocol.Data) error {
	to, count := l.stdout, &l.taken.Stdout
	if f.Stream == protocol.Stderr {
		to, count = l.stderr, &l.taken.Stderr
	}
	*count += uint64(len(f.Payload))
	if l.closed[f.Stream] {
		return nil // on its way before the gateway knew
	}
	if _, err := to.Write(f.Payload); err != nil {
		l.closed[f.Stream] = true
		return l.w.WriteFrame(&protocol.OutputClosed{Stream: f.Stream})
	}
	return l.w.WriteFrame(&l.taken)
}

func (l *localCaller) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	l.room.Broadcast()
}

// reserve waits for room in the window; 0 means that nobody takes more.
func (l *localCaller) reserve() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	for !l.ended && l.window.Room() == 0 {
		l.room.Wait()
	}
	if l.ended {
		return 0
	}
	return min(l.window.Room(), protocol.MaxData)
}

// send copies the input. An error of the pipe means that nobody takes more.
func (l *localCaller) send() {
	buf := make([]byte, protocol.DataHeaderMax+protocol.MaxData)
	var offset uint64
	for {
		room := l.reserve()
		if room == 0 {
			return
		}
		n, err := l.stdin.Read(buf[protocol.DataHeaderMax:][:room])
		if n > 0 {
			l.mu.Lock()
			l.window.Add(n)
			l.mu.Unlock()
			if l.w.WriteData(buf, 0, offset, n) != nil {
				return
			}
			offset += uint64(n)
		}
		if err != nil {
			_ = l.w.WriteFrame(&protocol.StdinEnd{Total: offset}) // the end says what was taken
			return
		}
	}
}

// localStream is the gateway's end of a pipe, as a stream of a peer that nobody
// proved to be. What the handlers do not use is absent.
type localStream struct {
	network.Stream // nil
	pipe           net.Conn
	conn           localConn
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
