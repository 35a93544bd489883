package ahead

import (
	"bytes"
	"sync"
	"time"

	"github.com/lendcli/lend/protocol"
)

// Max bounds the bytes of a Queue: more than a gateway sends without an
// acknowledgement.
const Max = protocol.MaxWindow + 2<<20

// Queue is the one of an operation; New makes it, and Close must be called in the end.
type Queue struct {
	take  func(*protocol.Data)
	taker sync.WaitGroup // run, in a goroutine

	mu      sync.Mutex // guards what follows
	wake    sync.Cond
	frames  []piece
	bytes   int
	running bool // something was put: taker runs
	taking  bool // of a frame that is not in frames any more
	closed  bool

	pool sync.Pool // of the buffers of large ones
}

// piece is one frame and the buffer that it lies in, nil if it has its own memory.
type piece struct {
	protocol.Data
	buf *[]byte
}

// large is the least payload that is taken over with its buffer.
const large = 16 << 10

// New returns an empty Queue. All that is put is handed to take, in order and one after
// the other, in a goroutine that begins with the first. The payload is the Queue's again
// when take returns.
func New(take func(*protocol.Data)) *Queue {
	q := &Queue{take: take}
	q.wake.L = &q.mu
	return q
}

// Put adds d, which r has just returned: it need not stay valid. It waits while there is
// no room, and does nothing once the Queue is closed.
func (q *Queue) Put(r *protocol.Reader, d *protocol.Data) {
	p := q.piece(r, d)
	q.mu.Lock()
	defer q.mu.Unlock()
	for !q.closed && q.bytes > 0 && q.bytes+len(p.Payload) > Max {
		q.wake.Wait()
	}
	if q.closed {
		return
	}
	q.frames = append(q.frames, p)
	q.bytes += len(p.Payload)
	if !q.running {
		q.running = true
		q.taker.Go(q.run)
	}
	q.wake.Broadcast()
}

// piece takes d from r with its buffer if it is large, else it copies it.
func (q *Queue) piece(r *protocol.Reader, d *protocol.Data) piece {
	n := len(d.Payload)
	p := piece{Data: protocol.Data{Stream: d.Stream, Offset: d.Offset}}
	if n >= large {
		spare, _ := q.pool.Get().(*[]byte)
		if spare == nil {
			b := make([]byte, protocol.DataHeaderMax+protocol.MaxData)
			spare = &b
		}
		if buf, at, ok := r.Swap(*spare); ok {
			*spare = buf
			p.buf, p.Payload = spare, buf[at:at+n]
			return p
		}
		q.pool.Put(spare)
	}
	p.Payload = bytes.Clone(d.Payload)
	return p
}

// run hands out what is put until Close.
func (q *Queue) run() {
	for {
		p, ok := q.next()
		if !ok {
			return
		}
		q.take(&p.Data)
		if p.buf != nil {
			q.pool.Put(p.buf)
		}
		q.took(len(p.Payload))
	}
}

func (q *Queue) next() (p piece, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.frames) == 0 && !q.closed {
		q.wake.Wait()
	}
	if q.closed {
		return piece{}, false
	}
	p, q.frames[0] = q.frames[0], piece{}
	q.frames = q.frames[1:]
	q.taking = true
	return p, true
}

func (q *Queue) took(n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.taking = false
	q.bytes -= n
	q.wake.Broadcast()
}

// Drain waits until all was taken.
func (q *Queue) Drain() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for !q.closed && (len(q.frames) > 0 || q.taking) {
		q.wake.Wait()
	}
}

// Cut waits until all was taken, but at most for d; then it forgets what is not being
// taken yet, and waits until nothing is.
func (q *Queue) Cut(d time.Duration) {
	late := false
	t := time.AfterFunc(d, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		late = true
		q.wake.Broadcast()
	})
	defer t.Stop()
	q.mu.Lock()
	defer q.mu.Unlock()
	for !q.closed && !late && len(q.frames) > 0 {
		q.wake.Wait()
	}
	for _, p := range q.frames {
		q.bytes -= len(p.Payload)
	}
	q.frames = nil
	for q.taking {
		q.wake.Wait()
	}
}

// Close forgets what was not taken, and waits for what is being taken.
func (q *Queue) Close() {
	q.mu.Lock()
	q.closed, q.frames = true, nil
	q.wake.Broadcast()
	q.mu.Unlock()
	q.taker.Wait()
}
