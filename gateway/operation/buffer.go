package operation

import (
	"sync/atomic"

	"github.com/lendcli/lend/gateway/operation/internal/spare"
	"github.com/lendcli/lend/protocol"
)

const (
	// floorWindow is what an operation may always keep, whatever the others do. It
	// is more than a caller leaves unacknowledged.
	floorWindow = 2 * protocol.AckEvery
	// pooledSize is a whole data frame; keepWhole is the least payload for which
	// such a buffer is kept instead of copied into one that fits.
	pooledSize = spare.Size
	keepWhole  = 16 << 10
	// smallPayload is what is joined to the chunk before it: a chunk costs as much
	// as some hundred bytes, and a peer or a child may write one byte at a time.
	smallPayload = 1 << 10
)

// Budget bounds the bytes that all operations of a gateway keep together, and
// holds their buffers. It is safe for concurrent use.
type Budget struct {
	max  int64
	used atomic.Int64
	pool spare.Pool
}

// NewBudget returns a budget of limit bytes.
func NewBudget(limit int64) *Budget { return &Budget{max: limit} }

// Used returns the bytes that are kept now.
func (b *Budget) Used() int64 { return b.used.Load() }

// Full tells that operations are held to the least window.
func (b *Budget) Full() bool { return b.used.Load() >= b.max }

// chunk is one piece of an output or of the input, with room for a data header
// before its payload. refs counts the window that keeps it and each write that
// uses it.
type chunk struct {
	buf    []byte
	pooled *[]byte // what buf is part of, nil if it is its own
	stream protocol.Stream
	offset uint64
	body   int // of the payload in buf
	start  int // of the data header in buf, for an output
	refs   int // guarded by Operation.mu
}

func (c *chunk) payload() []byte { return c.buf[c.body:] }
func (c *chunk) end() uint64     { return c.offset + uint64(len(c.payload())) }

// keep makes a chunk of the n payload bytes that were read into p, which it takes
// over: small ones are copied, so that a line does not hold a whole frame.
func (b *Budget) keep(p *[]byte, n int) *chunk {
	c := &chunk{refs: 1, body: protocol.DataHeaderMax}
	if n >= keepWhole {
		c.buf, c.pooled = (*p)[:protocol.DataHeaderMax+n], p
		b.used.Add(pooledSize)
		return c
	}
	c.buf = make([]byte, protocol.DataHeaderMax+n)
	copy(c.payload(), (*p)[protocol.DataHeaderMax:])
	b.pool.Put(p)
	b.used.Add(int64(len(c.buf)))
	return c
}

// taken makes a chunk of the payload that r has just returned, without a copy if it is
// large.
func (b *Budget) taken(r *protocol.Reader, payload []byte) *chunk {
	n := len(payload)
	if n < keepWhole {
		return b.copied(payload)
	}
	p := b.pool.Get()
	buf, at, ok := r.Swap(*p)
	if !ok {
		return b.keep(p, copy((*p)[protocol.DataHeaderMax:], payload))
	}
	*p = buf
	b.used.Add(pooledSize)
	return &chunk{refs: 1, buf: buf[:at+n], body: at, pooled: p}
}

// copied makes a chunk of bytes that stay the caller's.
func (b *Budget) copied(payload []byte) *chunk {
	p := b.pool.Get()
	return b.keep(p, copy((*p)[protocol.DataHeaderMax:], payload))
}

// extend joins a small payload to c, unless c is nil, in use or large enough.
func (b *Budget) extend(c *chunk, payload []byte) bool {
	if c == nil || c.refs > 1 || len(payload) >= smallPayload || len(c.buf)+len(payload) > keepWhole {
		return false
	}
	c.buf = append(c.buf, payload...)
	if c.pooled == nil {
		b.used.Add(int64(len(payload)))
	}
	return true
}

// last returns the last chunk, nil if there is none.
func last(chunks []*chunk) *chunk {
	if len(chunks) == 0 {
		return nil
	}
	return chunks[len(chunks)-1]
}

// unref drops one reference; with the last one the bytes are given back.
func (b *Budget) unref(c *chunk) {
	if c.refs--; c.refs > 0 {
		return
	}
	if c.pooled == nil {
		b.used.Add(-int64(len(c.buf)))
		return
	}
	b.used.Add(-pooledSize)
	b.pool.Put(c.pooled)
	c.buf, c.pooled = nil, nil
}
