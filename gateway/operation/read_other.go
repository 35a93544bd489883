//go:build !unix

package operation

import "io"

// readChunk reads once into a buffer of b, which is the caller's if n > 0.
func readChunk(b *Budget, r io.Reader) (p *[]byte, n int, err error) { return readInto(b, r) }
