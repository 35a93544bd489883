//go:build !unix

package spare

import "io"

// Read reads once into a buffer, behind room for a header; it is the caller's if n > 0.
func (s *Pool) Read(r io.Reader) (p *[]byte, n int, err error) { return s.readInto(r) }
