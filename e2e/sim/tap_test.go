package sim

import (
	"context"
	"fmt"
	"sync"

	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	core "github.com/libp2p/go-libp2p/core/protocol"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"

	"github.com/lendcli/lend/protocol"
)

// Where in a frame a fault happens.
const (
	before = iota // the other end gets nothing of it
	within
	after
	phases
)

// script counts the messages of all run streams of one operation, in both
// directions, and calls a fault at the one that the plan names. The two lines
// that negotiate the protocol count as messages: they look alike.
type script struct {
	fire func(*fault, *tapped)

	mu    sync.Mutex // guards what follows
	plan  [2][]*fault
	seen  [2]int
	fired int
	lives bool // until the plan's first operation is done
}

func newScript(p plan, fire func(*fault, *tapped)) *script {
	s := &script{fire: fire, lives: true}
	for i := range p.faults {
		f := &p.faults[i]
		s.plan[f.direction] = append(s.plan[f.direction], f)
	}
	return s
}

// next counts a message and returns the fault that belongs to it.
func (s *script) next(direction int) *fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.seen[direction]
	s.seen[direction]++
	if !s.lives {
		return nil
	}
	for _, f := range s.plan[direction] {
		if f.frame == i {
			s.fired++
			return f
		}
	}
	return nil
}

func (s *script) counts() (seen [2]int, fired int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen, s.fired
}

// tappedHost is a host whose run streams follow a script.
type tappedHost struct {
	host.Host
	script *script
}

func (h *tappedHost) Network() network.Network { return &tappedNetwork{h.Host.Network(), h.script} }

type tappedNetwork struct {
	network.Network
	script *script
}

// DialPeer does not wait for libp2p's own backoff, as the client's own host.
func (n *tappedNetwork) DialPeer(ctx context.Context, p peer.ID) (network.Conn, error) {
	if s, ok := n.Network.(*swarm.Swarm); ok {
		s.Backoff().Clear(p)
	}
	c, err := n.Network.DialPeer(ctx, p)
	if err != nil {
		return nil, err
	}
	return &tappedConn{c, n}, nil
}

// tappedConn is a connection that was just made: its first stream is opened on it.
type tappedConn struct {
	network.Conn
	network *tappedNetwork
}

func (c *tappedConn) NewStream(ctx context.Context) (network.Stream, error) {
	return c.network.tap(c.Conn.NewStream(ctx))
}

func (n *tappedNetwork) NewStream(ctx context.Context, p peer.ID) (network.Stream, error) {
	return n.tap(n.Network.NewStream(ctx, p))
}

func (n *tappedNetwork) tap(s network.Stream, err error) (network.Stream, error) {
	if err != nil {
		return nil, err
	}
	return &tapped{Stream: s, network: n.Network, script: n.script}, nil
}

// tapped is one stream. Only streams of the run protocol follow the script.
type tapped struct {
	network.Stream
	network network.Network
	script  *script
	runs    bool
	out, in framer

	mu    sync.Mutex // guards gone
	gone  bool       // a fault has ended it
	stash []byte     // read and not given yet; owned by the reader
	due   *fault     // likewise: to happen before the next byte
}

func (t *tapped) SetProtocol(id core.ID) error {
	t.runs = id == protocol.RunID
	return t.Stream.SetProtocol(id)
}

// end makes the stream useless, whatever is under way on it.
func (t *tapped) end() {
	t.mu.Lock()
	t.gone = true
	t.mu.Unlock()
	_ = t.Stream.Reset()
}

func (t *tapped) isGone() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.gone
}

func (t *tapped) Write(b []byte) (n int, err error) {
	if !t.runs {
		return t.Stream.Write(b)
	}
	for n < len(b) {
		if t.isGone() {
			return n, network.ErrReset
		}
		size, f := t.piece(&t.out, up, b[n:])
		if size > 0 {
			m, err := t.Stream.Write(b[n : n+size])
			n += m
			if err != nil {
				return n, err
			}
		}
		if f != nil {
			t.script.fire(f, t)
		}
	}
	return n, nil
}

func (t *tapped) Read(b []byte) (int, error) {
	if !t.runs {
		return t.Stream.Read(b)
	}
	for {
		if t.due != nil {
			f := t.due
			t.due = nil
			t.script.fire(f, t)
		}
		if t.isGone() {
			return 0, network.ErrReset
		}
		if len(t.stash) == 0 {
			buf := make([]byte, len(b))
			n, err := t.Stream.Read(buf)
			if err != nil && n == 0 {
				return 0, err
			}
			t.stash = buf[:n]
		}
		size, f := t.piece(&t.in, down, t.stash)
		t.due = f
		n := copy(b, t.stash[:min(size, len(b))])
		t.stash = t.stash[n:]
		if n > 0 {
			return n, nil
		}
	}
}

// piece returns how much of b may go until something happens.
func (t *tapped) piece(fr *framer, direction int, b []byte) (int, *fault) {
	size := 0
	for size < len(b) {
		if fr.begins() {
			fr.due = t.script.next(direction)
			if fr.due != nil && fr.due.phase == before {
				f := fr.due
				fr.due = nil
				fr.entered = true
				return size, f
			}
		}
		n, half, whole := fr.take(b[size:], fr.due != nil && fr.due.phase == within)
		size += n
		if fr.due != nil && (half || whole) {
			f := fr.due
			fr.due = nil
			return size, f
		}
	}
	return size, nil
}

// framer follows a stream of messages that a varint length precedes.
type framer struct {
	due     *fault
	entered bool // the message was counted
	head    int  // bytes of the length so far
	length  uint64
	body    uint64 // bytes still to come
	inBody  bool
	halved  bool
}

// begins tells once for each message that it begins.
func (f *framer) begins() bool {
	first := !f.entered
	f.entered = true
	return first
}

// take goes at most to the end of the message, or, if half is wanted, into its
// middle: after the first byte of its length, or of a long one half of its body.
func (f *framer) take(b []byte, half bool) (n int, halved, whole bool) {
	for n < len(b) {
		if !f.inBody {
			f.length |= uint64(b[n]&0x7f) << (7 * f.head)
			f.head++
			n++
			if b[n-1] < 0x80 {
				f.inBody, f.body = true, f.length
			}
		} else {
			step := min(f.body, uint64(len(b)-n))
			if half && !f.halved && f.body > f.length/2 {
				step = min(step, f.body-f.length/2)
			}
			n += int(step)
			f.body -= step
		}
		if f.inBody && f.body == 0 {
			*f = framer{due: f.due}
			return n, false, true
		}
		if half && !f.halved && f.inBody && f.body <= f.length/2 {
			f.halved = true
			return n, true, false
		}
	}
	return n, false, false
}

func (t *tapped) String() string { return fmt.Sprintf("stream %s", t.Stream.ID()) }
