package outbox

import (
	"sort"
	"sync"

	"github.com/lendcli/lend/protocol"
)

// leastRead is how much room for a read the chunk that is being filled must have; else
// another is begun. So chunks are well filled whatever the reader yields at once.
const leastRead = 16 << 10

// chunk is a piece of the input: the payload of one frame, with room for its header,
// at most. n bytes of it are there; the first one is the byte at offset.
type chunk struct {
	buf    [protocol.DataHeaderMax + protocol.MaxData]byte
	offset uint64 // beyond 2^63 where what comes before the first byte that counts would be negative
	n      int
	listed bool // in kept.chunks
}

func (c *chunk) end() uint64 { return c.offset + uint64(c.n) }

// kept is the input that may be needed again, in chunks that are read into and sent
// without a copy in between. Box.mu guards it, but for what fill and sending point to:
// one goroutine may read into what is free of the former while another one writes the
// latter to a link.
type kept struct {
	chunks  []*chunk // in order and without a gap
	filling *chunk   // read into, whether it is listed or not
	sending *chunk   // written to a link now
	scratch []byte   // for a frame that is not a chunk from its beginning
	free    sync.Pool
}

// space returns where to read at most limit bytes, which add then takes.
func (k *kept) space(limit int) []byte {
	c := k.filling
	if c != nil && !c.listed && c != k.sending {
		c.n = 0 // nobody needs what is in it
	}
	if c == nil || protocol.MaxData-c.n < leastRead {
		k.retire(c)
		c, _ = k.free.Get().(*chunk)
		if c == nil {
			c = &chunk{}
		}
		c.n = 0
		k.filling = c
	}
	from := protocol.DataHeaderMax + c.n
	return c.buf[from:min(from+limit, len(c.buf))]
}

// add takes n bytes from where space pointed to, but for the first few, which are
// passed over. The first of them is the byte at offset.
func (k *kept) add(offset uint64, n, pass int) {
	c := k.filling
	from := protocol.DataHeaderMax + c.n
	copy(c.buf[from:], c.buf[from+pass:from+n])
	n -= pass
	if n == 0 {
		return
	}
	if !c.listed {
		c.listed, c.offset = true, offset-uint64(c.n)
		k.chunks = append(k.chunks, c)
	}
	c.n += n
}

// frame returns the bytes from offset on that are sent as one frame, behind room for
// its header: n of them. They stay as they are until sent is called.
func (k *kept) frame(offset uint64) (buf []byte, n int) {
	i := sort.Search(len(k.chunks), func(i int) bool { return k.chunks[i].end() > offset })
	c := k.chunks[i]
	n = int(c.end() - offset)
	if offset == c.offset {
		k.sending = c
		return c.buf[:], n
	}
	if k.scratch == nil {
		k.scratch = make([]byte, len(c.buf))
	}
	copy(k.scratch[protocol.DataHeaderMax:], c.buf[protocol.DataHeaderMax+c.n-n:][:n])
	return k.scratch, n
}

// sent says that what frame returned is not needed any more.
func (k *kept) sent() {
	c := k.sending
	k.sending = nil
	k.release(c)
}

// forget drops what is before base.
func (k *kept) forget(base uint64) {
	n := 0
	for n < len(k.chunks) && k.chunks[n].end() <= base {
		n++
	}
	k.drop(n)
}

// clear drops all.
func (k *kept) clear() { k.drop(len(k.chunks)) }

func (k *kept) drop(n int) {
	for i, c := range k.chunks[:n] {
		c.listed, k.chunks[i] = false, nil
		k.release(c)
	}
	k.chunks = k.chunks[n:]
}

// retire ends the filling of c.
func (k *kept) retire(c *chunk) {
	k.filling = nil
	k.release(c)
}

// release lets c be used again, if nobody needs it.
func (k *kept) release(c *chunk) {
	if c != nil && !c.listed && c != k.filling && c != k.sending {
		k.free.Put(c)
	}
}
