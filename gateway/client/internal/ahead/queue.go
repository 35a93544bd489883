package ahead

import (
	"sync"
	"time"

	"github.com/lendcli/lend/protocol"
)

// Max bounds the bytes of a Queue: more than a gateway sends without an
// acknowledgement.
const Max = protocol.MaxWindow + 2<<20

// Queue is the one of an operation; New makes it, and Take must run until Close.
type Queue struct {
	mu     sync.Mutex // guards what follows
	wake   sync.Cond
	frames []*protocol.Data
	bytes  int
	taking bool // of a frame that is not in frames any more
	closed bool

	pool sync.Pool
}

// New returns an empty Queue.
func New() *Queue {
	q := &Queue{}
	q.wake.L = &q.mu
	return q
}

// Put adds a copy of d. It waits while there is no room, and does nothing once the
// Queue is closed.
func (q *Queue) Put(d *protocol.Data) {
	p, _ := q.pool.Get().(*[]byte)
	if p == nil || cap(*p) < len(d.Payload) {
		b := make([]byte, 0, max(len(d.Payload), 1<<10))
		p = &b
	}
	c := &protocol.Data{Stream: d.Stream, Offset: d.Offset, Payload: append((*p)[:0], d.Payload...)}
	q.mu.Lock()
	defer q.mu.Unlock()
	for !q.closed && q.bytes > 0 && q.bytes+len(c.Payload) > Max {
		q.wake.Wait()
	}
	if q.closed {
		return
	}
	q.frames = append(q.frames, c)
	q.bytes += len(c.Payload)
	q.wake.Broadcast()
}

// Take hands all that is put to take, in order and one after the other, until Close.
// The payload is the Queue's again when take returns.
func (q *Queue) Take(take func(*protocol.Data)) {
	for {
		d := q.next()
		if d == nil {
			return
		}
		take(d)
		q.pool.Put(&d.Payload)
		q.took(len(d.Payload))
	}
}

func (q *Queue) next() *protocol.Data {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.frames) == 0 && !q.closed {
		q.wake.Wait()
	}
	if q.closed {
		return nil
	}
	d := q.frames[0]
	q.frames[0] = nil
	q.frames = q.frames[1:]
	q.taking = true
	return d
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
	for _, d := range q.frames {
		q.bytes -= len(d.Payload)
	}
	q.frames = nil
	for q.taking {
		q.wake.Wait()
	}
}

// Close ends Take, and forgets what was not taken.
func (q *Queue) Close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed, q.frames = true, nil
	q.wake.Broadcast()
}
