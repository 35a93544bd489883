package gateway

import (
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/network"

	"github.com/lendcli/lend/protocol"
	"github.com/lendcli/lend/protocol/name"
	"github.com/lendcli/lend/protocol/pair"
)

// farewell is how long those who pair may take to read how it ended.
const farewell = 6 * time.Second

// Receive lets peers in that the policy does not know, for pairing and nothing else, and
// has serve answer their pairing streams until stop, which waits a moment for those that
// are open. serve is called with a deadline for the first frame; keep says that the peer
// has shown the invitation and may stay, and ends the deadline. One Receive at a time.
func (n *Node) Receive(serve func(s network.Stream, peer name.PeerID, keep func())) (stop func()) {
	r := &reception{idle: make(chan struct{})}
	n.door.Invite(true)
	n.host.SetStreamHandler(pair.ID, n.handler(n.receive(r, serve)))
	return func() {
		n.host.RemoveStreamHandler(pair.ID)
		r.end()
		n.door.Invite(false)
	}
}

// receive serves one pairing stream.
func (n *Node) receive(r *reception, serve func(s network.Stream, peer name.PeerID, keep func())) func(*call) error {
	return func(c *call) error {
		if c.Conn().Stat().Limited || !r.enter() {
			c.reset(protocol.CodeDenied)
			return nil
		}
		defer r.leave()
		serve(c.Stream, c.caller.holder, func() {
			c.read()
			n.door.Keep(c.caller.id)
			_ = c.SetDeadline(time.Time{})
		})
		return c.linger()
	}
}

// reception counts the pairing streams.
type reception struct {
	mu    sync.Mutex // guards what follows
	open  int
	ended bool
	idle  chan struct{} // closed when it has ended and none is open
}

func (r *reception) enter() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return false
	}
	r.open++
	return true
}

func (r *reception) leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open--; r.ended && r.open == 0 {
		close(r.idle)
	}
}

// end waits for the streams that are open, for a moment.
func (r *reception) end() {
	r.mu.Lock()
	r.ended = true
	none := r.open == 0
	r.mu.Unlock()
	if none {
		return
	}
	late := time.NewTimer(farewell)
	defer late.Stop()
	select {
	case <-r.idle:
	case <-late.C:
	}
}
