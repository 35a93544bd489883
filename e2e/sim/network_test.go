package sim

import (
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/p2p/transport/quicreuse"
)

const (
	latency   = 5 * time.Millisecond // one way
	maxQueued = 4096                 // packets that wait for a reader
)

// simnet carries packets between endpoints on the clock of the bubble. Packets of one
// direction keep their order, but for those that a rule lets overtake.
type simnet struct {
	mu    sync.Mutex // guards all that follows
	rng   *rand.Rand
	ends  map[string]*endpoint
	flows map[[2]string]*flow
	port  int

	downUntil [2]time.Time // by direction: packets are lost until then
	slowUntil time.Time    // packets take slowBy longer until then
	slowBy    time.Duration
	loss      float64 // of packets, after which some are also reordered
	lossUntil time.Time
}

// Directions of packets and of frames.
const (
	up   = 0 // from the caller
	down = 1
)

const gatewayIP = "1.0.0.1"

func newSimnet(seed uint64) *simnet {
	return &simnet{rng: rand.New(rand.NewPCG(seed, 1)), ends: map[string]*endpoint{}, flows: map[[2]string]*flow{}, port: 9000}
}

type packet struct {
	due  time.Time
	from net.Addr
	data []byte
}

// flow is what is under way from one address to another.
type flow struct{ packets []packet }

// hole loses every packet of the given directions for d.
func (n *simnet) hole(d time.Duration, directions ...int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, i := range directions {
		n.downUntil[i] = time.Now().Add(d)
	}
}

func (n *simnet) slow(by, d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.slowBy, n.slowUntil = by, time.Now().Add(d)
}

func (n *simnet) lossy(share float64, d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.loss, n.lossUntil = share, time.Now().Add(d)
}

// heal ends all faults of the network.
func (n *simnet) heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.downUntil, n.slowUntil, n.lossUntil = [2]time.Time{}, time.Time{}, time.Time{}
}

// detach takes the machine at ip off the network, at once and for good: its
// sockets do not notice.
func (n *simnet) detach(ip string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for k, e := range n.ends {
		if e.addr.IP.String() == ip {
			e.dead = true
			delete(n.ends, k)
		}
	}
}

func (n *simnet) send(e *endpoint, b []byte, to net.Addr) {
	n.mu.Lock()
	defer n.mu.Unlock()
	now, direction := time.Now(), up
	if e.addr.IP.String() == gatewayIP {
		direction = down
	}
	if e.dead || now.Before(n.downUntil[direction]) {
		return
	}
	wait, overtakes := latency, false
	if now.Before(n.lossUntil) {
		if n.rng.Float64() < n.loss {
			return
		}
		overtakes = n.rng.Float64() < n.loss
	}
	if now.Before(n.slowUntil) {
		wait += n.slowBy
	}
	p := packet{now.Add(wait), e.addr, append([]byte(nil), b...)}
	if overtakes {
		time.AfterFunc(wait/2, func() { n.deliver(p, to) })
		return
	}
	k := [2]string{e.addr.String(), to.String()}
	f := n.flows[k]
	if f == nil {
		f = &flow{}
		n.flows[k] = f
	}
	if l := len(f.packets); l > 0 && f.packets[l-1].due.After(p.due) {
		p.due = f.packets[l-1].due
	}
	f.packets = append(f.packets, p)
	time.AfterFunc(p.due.Sub(now), func() { n.arrive(f, to) })
}

// arrive delivers what is due of f, in order.
func (n *simnet) arrive(f *flow, to net.Addr) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for len(f.packets) > 0 && !f.packets[0].due.After(time.Now()) {
		n.deliverLocked(f.packets[0], to)
		f.packets = f.packets[1:]
	}
}

func (n *simnet) deliver(p packet, to net.Addr) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.deliverLocked(p, to)
}

func (n *simnet) deliverLocked(p packet, to net.Addr) {
	if e := n.ends[to.String()]; e != nil {
		e.push(p)
	}
}

// endpoint is one UDP socket.
type endpoint struct {
	net  *simnet
	addr *net.UDPAddr
	wake chan struct{}
	dead bool // guarded by net.mu: nothing that it sends arrives

	mu       sync.Mutex // guards what follows
	queue    []packet
	deadline time.Time
	closed   bool
}

// socket opens a socket of the machine at ip; port 0 picks one.
func (n *simnet) socket(ip string, port int) *endpoint {
	n.mu.Lock()
	defer n.mu.Unlock()
	if port == 0 {
		n.port++
		port = n.port
	}
	e := &endpoint{net: n, addr: &net.UDPAddr{IP: net.ParseIP(ip).To4(), Port: port}, wake: make(chan struct{}, 1)}
	n.ends[e.addr.String()] = e
	return e
}

func (e *endpoint) push(p packet) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.closed && len(e.queue) < maxQueued {
		e.queue = append(e.queue, p)
	}
	e.signal()
}

func (e *endpoint) signal() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

func (e *endpoint) ReadFrom(b []byte) (int, net.Addr, error) {
	for {
		n, from, expire, err := e.next(b)
		if from != nil || err != nil {
			return n, from, err
		}
		select {
		case <-e.wake:
		case <-expire:
		}
	}
}

func (e *endpoint) next(b []byte) (n int, from net.Addr, expire <-chan time.Time, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.closed:
		return 0, nil, nil, net.ErrClosed
	case !e.deadline.IsZero() && !time.Now().Before(e.deadline):
		return 0, nil, nil, os.ErrDeadlineExceeded
	case len(e.queue) > 0:
		p := e.queue[0]
		e.queue = e.queue[1:]
		return copy(b, p.data), p.from, nil, nil
	case !e.deadline.IsZero():
		expire = time.After(time.Until(e.deadline))
	}
	return 0, nil, expire, nil
}

func (e *endpoint) WriteTo(b []byte, to net.Addr) (int, error) {
	e.mu.Lock()
	closed := e.closed
	e.mu.Unlock()
	if closed {
		return 0, net.ErrClosed
	}
	e.net.send(e, b, to)
	return len(b), nil
}

func (e *endpoint) Close() error {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.signal()
	e.net.mu.Lock()
	defer e.net.mu.Unlock()
	if e.net.ends[e.addr.String()] == e {
		delete(e.net.ends, e.addr.String())
	}
	return nil
}

func (e *endpoint) LocalAddr() net.Addr { return e.addr }

func (e *endpoint) SetDeadline(t time.Time) error { return e.SetReadDeadline(t) }

func (e *endpoint) SetReadDeadline(t time.Time) error {
	e.mu.Lock()
	e.deadline = t
	e.mu.Unlock()
	e.signal()
	return nil
}

func (e *endpoint) SetWriteDeadline(time.Time) error { return nil }

// SetReadBuffer is what quic-go asks of sockets.
func (e *endpoint) SetReadBuffer(int) error { return nil }

// SetWriteBuffer likewise.
func (e *endpoint) SetWriteBuffer(int) error { return nil }

// machine gives a libp2p host sockets at one address, and closes what libp2p
// leaves open when the sockets are not its own.
type machine struct {
	net *simnet
	ip  string

	mu      sync.Mutex // guards manager
	manager *quicreuse.ConnManager
}

func (m *machine) options() []quicreuse.Option {
	return []quicreuse.Option{
		quicreuse.OverrideSourceIPSelector(func() (quicreuse.SourceIPSelector, error) { return m, nil }),
		quicreuse.OverrideListenUDP(func(_ string, a *net.UDPAddr) (net.PacketConn, error) {
			return m.net.socket(m.ip, a.Port), nil
		}),
		func(c *quicreuse.ConnManager) error {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.manager = c
			return nil
		},
	}
}

// PreferredSourceIPForDestination is the one there is.
func (m *machine) PreferredSourceIPForDestination(*net.UDPAddr) (net.IP, error) {
	return net.ParseIP(m.ip).To4(), nil
}

func (m *machine) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.manager != nil {
		_ = m.manager.Close()
	}
}
