package text

import "unicode/utf8"

// Stream is UTF-8 that comes in pieces, which may split a rune. The zero Stream is
// empty text. It is for one goroutine at a time.
type Stream struct{ partial []byte }

// Whole tells whether the text may end here.
func (s *Stream) Whole() bool { return len(s.partial) == 0 }

// Take tells whether b goes on as valid UTF-8; once it does not, the Stream is of
// no use.
func (s *Stream) Take(b []byte) bool {
	if len(s.partial) > 0 {
		whole := append(s.partial, b[:min(len(b), utf8.UTFMax)]...)
		if !utf8.FullRune(whole) {
			s.partial = whole
			return true
		}
		r, size := utf8.DecodeRune(whole)
		if r == utf8.RuneError && size <= 1 {
			return false
		}
		b = b[size-len(s.partial):]
		s.partial = nil
	}
	for i := 1; i < utf8.UTFMax && i <= len(b); i++ {
		tail := b[len(b)-i:]
		if !utf8.RuneStart(tail[0]) {
			continue
		}
		if !utf8.FullRune(tail) {
			s.partial = append([]byte(nil), tail...)
			b = b[:len(b)-i]
		}
		break
	}
	return utf8.Valid(b)
}
