package sim

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// cutPoint says where a proxy cuts a connection: at a record of one direction,
// before it, after its first byte, in its middle or after it.
type cutPoint struct {
	direction, record, where int
}

const (
	atStart = iota
	afterFirstByte
	inMiddle
	atEnd
	wheres
)

// proxy stands between a caller and a gateway on TCP. It sees the records of the
// secure channel, which end where frames end: each frame is one Write. It cuts
// the first connection that comes to the point, once, and lets others through.
type proxy struct {
	listener net.Listener
	to       string
	point    *cutPoint
	cut      atomic.Bool
	records  [2]atomic.Int64 // of the first connection
	accepted atomic.Int64
	wg       sync.WaitGroup

	mu    sync.Mutex // guards conns
	conns []net.Conn
}

func newProxy(t *testing.T, to string, point *cutPoint) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{listener: l, to: to, point: point}
	p.wg.Go(p.accept)
	return p
}

func (p *proxy) close() {
	_ = p.listener.Close()
	p.mu.Lock()
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.mu.Unlock()
	p.wg.Wait()
}

func (p *proxy) accept() {
	for {
		near, err := p.listener.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", p.to)
		if err != nil {
			_ = near.Close()
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, near, far)
		p.mu.Unlock()
		first := p.accepted.Add(1) == 1
		both := func() { _, _ = near.Close(), far.Close() }
		p.wg.Go(func() { defer both(); p.copy(far, near, up, first) })
		p.wg.Go(func() { defer both(); p.copy(near, far, down, first) })
	}
}

// copy passes bytes on until the point, or the end.
func (p *proxy) copy(to io.Writer, from io.Reader, direction int, first bool) {
	r := &recordReader{r: from}
	for i := int64(0); ; i++ {
		b, err := r.next()
		if first {
			p.records[direction].Store(i)
		}
		if c := p.point; c != nil && err == nil && c.direction == direction && int64(c.record) == i && p.cut.CompareAndSwap(false, true) {
			_, _ = to.Write(b[:[wheres]int{0, 1, len(b) / 2, len(b)}[c.where]])
			return
		}
		if len(b) > 0 {
			if _, err := to.Write(b); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// recordReader splits what a libp2p TCP connection carries: the lines that agree
// on a secure channel, then the records of Noise or TLS.
type recordReader struct {
	r      io.Reader
	header int // of a record; 0: still lines
}

// next returns one line or record, whole but for the end of the connection.
func (r *recordReader) next() ([]byte, error) {
	head := make([]byte, max(1, r.header))
	if n, err := io.ReadFull(r.r, head); err != nil {
		return head[:n], err
	}
	size := int(head[0])
	switch r.header {
	case 2: // Noise
		size = int(binary.BigEndian.Uint16(head))
	case 5: // TLS
		size = int(binary.BigEndian.Uint16(head[3:]))
	}
	b := append(head, make([]byte, size)...)
	n, err := io.ReadFull(r.r, b[len(head):])
	b = b[:len(head)+n]
	if r.header == 0 {
		switch {
		case bytes.HasSuffix(b, []byte("/noise\n")):
			r.header = 2
		case bytes.HasSuffix(b, []byte("/tls/1.0.0\n")):
			r.header = 5
		}
	}
	return b, err
}
