package name

import (
	"strconv"
	"unicode/utf8"
)

// MaxQuoted bounds the text that Quote shows, in bytes before quoting.
const MaxQuoted = 200

// Quote returns s as a double-quoted ASCII Go string literal: control bytes,
// escape sequences, invalid UTF-8 and every non-ASCII rune (bidi and C1 controls
// among them) are escaped. Text longer than MaxQuoted bytes is cut and "…" follows
// the closing quote. It is the one way in which remote text reaches a log, a
// terminal or a page.
func Quote(s string) string {
	if len(s) <= MaxQuoted {
		return strconv.QuoteToASCII(s)
	}
	cut := MaxQuoted
	for cut > MaxQuoted-utf8.UTFMax && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return strconv.QuoteToASCII(s[:cut]) + "…"
}

// Show returns s as it is if it is printable ASCII of at most MaxQuoted bytes, and
// Quote(s) otherwise: for whole messages of others, which hold quotes of their own.
func Show(s string) string {
	if len(s) > MaxQuoted {
		return Quote(s)
	}
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return Quote(s)
		}
	}
	return s
}
