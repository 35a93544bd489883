package lendtest

import (
	"net"
	"os"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/p2p/transport/quicreuse"
)

// maxQueued bounds the packets that wait for a reader; more are lost, as on a network.
const maxQueued = 4096

// wires carry packets between sockets in memory, at once and in order.
type wires struct {
	mu   sync.Mutex // guards what follows
	ends map[string]*socket
	port int
	cut  bool // nothing arrives
}

func newWires() *wires { return &wires{ends: map[string]*socket{}, port: 9000} }

// setCut makes the network lose everything, or not any more.
func (w *wires) setCut(cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = cut
}

// open makes a socket of the machine at ip; port 0 picks one.
func (w *wires) open(ip net.IP, port int) *socket {
	w.mu.Lock()
	defer w.mu.Unlock()
	if port == 0 {
		w.port++
		port = w.port
	}
	s := &socket{wires: w, addr: &net.UDPAddr{IP: ip, Port: port}, wake: make(chan struct{}, 1)}
	w.ends[s.addr.String()] = s
	return s
}

func (w *wires) send(from *socket, b []byte, to net.Addr) {
	w.mu.Lock()
	end := w.ends[to.String()]
	if w.cut {
		end = nil
	}
	w.mu.Unlock()
	if end != nil {
		end.push(packet{from.addr, append([]byte(nil), b...)})
	}
}

type packet struct {
	from net.Addr
	data []byte
}

// socket is a UDP socket as QUIC needs one.
type socket struct {
	wires *wires
	addr  *net.UDPAddr
	wake  chan struct{} // of one token: something has changed

	mu       sync.Mutex // guards what follows
	queue    []packet
	deadline time.Time
	closed   bool
}

func (s *socket) push(p packet) {
	s.mu.Lock()
	if !s.closed && len(s.queue) < maxQueued {
		s.queue = append(s.queue, p)
	}
	s.mu.Unlock()
	s.signal()
}

func (s *socket) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// ReadFrom is for one reader.
func (s *socket) ReadFrom(b []byte) (int, net.Addr, error) {
	for {
		n, from, until, err := s.next(b)
		if from != nil || err != nil {
			return n, from, err
		}
		s.await(until)
	}
}

// await waits for a change, or until then if that is not zero.
func (s *socket) await(until time.Time) {
	var expired <-chan time.Time
	if !until.IsZero() {
		t := time.NewTimer(time.Until(until))
		defer t.Stop()
		expired = t.C
	}
	select {
	case <-s.wake:
	case <-expired:
	}
}

func (s *socket) next(b []byte) (n int, from net.Addr, until time.Time, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return 0, nil, until, net.ErrClosed
	case !s.deadline.IsZero() && !time.Now().Before(s.deadline):
		return 0, nil, until, os.ErrDeadlineExceeded
	case len(s.queue) > 0:
		p := s.queue[0]
		s.queue = s.queue[1:]
		return copy(b, p.data), p.from, until, nil
	}
	return 0, nil, s.deadline, nil
}

func (s *socket) WriteTo(b []byte, to net.Addr) (int, error) {
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return 0, net.ErrClosed
	}
	s.wires.send(s, b, to)
	return len(b), nil
}

func (s *socket) Close() error {
	s.mu.Lock()
	s.closed, s.queue = true, nil
	s.mu.Unlock()
	s.signal()
	s.wires.mu.Lock()
	defer s.wires.mu.Unlock()
	if s.wires.ends[s.addr.String()] == s {
		delete(s.wires.ends, s.addr.String())
	}
	return nil
}

func (s *socket) LocalAddr() net.Addr { return s.addr }

func (s *socket) SetDeadline(t time.Time) error { return s.SetReadDeadline(t) }

func (s *socket) SetReadDeadline(t time.Time) error {
	s.mu.Lock()
	s.deadline = t
	s.mu.Unlock()
	s.signal()
	return nil
}

func (s *socket) SetWriteDeadline(time.Time) error { return nil }

// SetReadBuffer and SetWriteBuffer are what QUIC asks of sockets.
func (s *socket) SetReadBuffer(int) error { return nil }

// SetWriteBuffer does nothing.
func (s *socket) SetWriteBuffer(int) error { return nil }

// machine gives a libp2p host the sockets of one address. libp2p leaves sockets that
// are not its own open: close does that, after the host.
type machine struct {
	wires *wires
	ip    net.IP

	mu       sync.Mutex // guards managers
	managers []*quicreuse.ConnManager
}

func (w *wires) machine(last byte) *machine {
	return &machine{wires: w, ip: net.IPv4(1, 0, 0, last).To4()}
}

func (m *machine) options() []quicreuse.Option {
	return []quicreuse.Option{
		quicreuse.OverrideSourceIPSelector(func() (quicreuse.SourceIPSelector, error) { return m, nil }),
		quicreuse.OverrideListenUDP(func(_ string, a *net.UDPAddr) (net.PacketConn, error) {
			return m.wires.open(m.ip, a.Port), nil
		}),
		func(c *quicreuse.ConnManager) error {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.managers = append(m.managers, c)
			return nil
		},
	}
}

// PreferredSourceIPForDestination is the one address that there is.
func (m *machine) PreferredSourceIPForDestination(*net.UDPAddr) (net.IP, error) { return m.ip, nil }

func (m *machine) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.managers {
		_ = c.Close() // the sockets close without an error
	}
	m.managers = nil
}
