package main

import (
	"fmt"
	"io"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/rs/zerolog"
)

// newLog writes lines of JSON to w, from level on. They hold printable ASCII alone:
// JSON lets through what turns a terminal's text around, or moves its cursor.
func newLog(w io.Writer, level zerolog.Level) zerolog.Logger {
	return zerolog.New(ascii{w}).Level(level).With().Timestamp().Logger()
}

// ascii writes JSON with the same meaning, each other character as \uXXXX.
type ascii struct{ to io.Writer }

// Write takes one whole line.
func (a ascii) Write(line []byte) (int, error) {
	out := make([]byte, 0, len(line)+len(line)/8)
	for rest := line; len(rest) > 0; {
		r, n := utf8.DecodeRune(rest)
		rest = rest[n:]
		switch {
		case r < 0x7f:
			out = append(out, byte(r))
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
	}
	if _, err := a.to.Write(out); err != nil {
		return 0, err
	}
	return len(line), nil
}
