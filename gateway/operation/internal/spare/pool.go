package spare

import (
	"io"
	"sync"

	"github.com/lendcli/lend/protocol"
)

// Size is that of a buffer: a whole data frame.
const Size = protocol.DataHeaderMax + protocol.MaxData

// Pool has the buffers that nobody uses. The zero value has none. It is safe for
// concurrent use.
type Pool struct{ pool sync.Pool }

// Get returns a buffer of Size bytes, with anything in it.
func (s *Pool) Get() *[]byte {
	if p, ok := s.pool.Get().(*[]byte); ok {
		return p
	}
	p := make([]byte, Size)
	return &p
}

// Put takes a buffer of Size bytes that nobody uses any more.
func (s *Pool) Put(p *[]byte) { s.pool.Put(p) }

// readInto reads once into a buffer that it takes beforehand.
func (s *Pool) readInto(r io.Reader) (*[]byte, int, error) {
	p := s.Get()
	n, err := r.Read((*p)[protocol.DataHeaderMax:])
	if n <= 0 {
		s.Put(p)
		return nil, 0, err
	}
	return p, n, err
}
