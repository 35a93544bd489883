package review

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/lendcli/lend/protocol/name"
)

// Prose is a text in two forms at once: everything that there is to say, and as much
// as people read. Texts are joined as strings, string(a) + string(b). It is no form for
// showing: Long and Brief are.
type Prose string

// The marks around the places where the forms differ. Foreign text is quoted, so it
// has none of them.
const (
	markLong  = "\x02"
	markBrief = "\x03"
	markEnd   = "\x04"
)

// Bounds of what Brief shows.
const (
	maxItems   = 6  // of a list
	firstItems = 3  // of one that has more
	maxPattern = 40 // characters of a pattern
)

// Alternative is a place where the forms differ. Forms of what is given count for it.
func Alternative(long, brief Prose) Prose {
	l, b := long.Long(), brief.Brief()
	if l == b {
		return Prose(l)
	}
	return Prose(markLong + l + markBrief + b + markEnd)
}

// Long is the text with everything.
func (p Prose) Long() string { return p.form(true) }

// Brief is the text for people: of lists with more than 6 items the first 3 and how
// many they are in all, and no pattern of more than 40 characters.
func (p Prose) Brief() string { return p.form(false) }

// String is Long.
func (p Prose) String() string { return p.Long() }

// MarshalText is Long, without an error.
func (p Prose) MarshalText() ([]byte, error) { return []byte(p.Long()), nil }

func (p Prose) form(long bool) string {
	var b strings.Builder
	for rest := string(p); ; {
		before, after, more := strings.Cut(rest, markLong)
		b.WriteString(before)
		if !more {
			return b.String()
		}
		l, after, _ := strings.Cut(after, markBrief)
		s, after, _ := strings.Cut(after, markEnd)
		if long {
			s = l
		}
		b.WriteString(s)
		rest = after
	}
}

// Listed writes "a, b and c".
func Listed(items []string) Prose {
	return Alternative(Prose(Enumerate(items)), Prose(firstOf(items)))
}

// firstOf are the first items if they are many, "a, b, c, … (9 in all)".
func firstOf(items []string) string {
	if len(items) <= maxItems {
		return Enumerate(items)
	}
	return fmt.Sprintf("%s, … (%d in all)", strings.Join(items[:firstItems], ", "), len(items))
}

// Quoted writes values with commas between them.
func Quoted(values []string) Prose {
	quoted := make([]string, 0, len(values))
	for _, v := range values {
		quoted = append(quoted, name.Quote(v))
	}
	long := Prose(strings.Join(quoted, ", "))
	if len(values) <= maxItems {
		return long
	}
	return Alternative(long, Prose(firstOf(quoted)))
}

// Pattern writes a verb and the pattern that comes after it.
func Pattern(verb, pattern string) Prose {
	long := Prose(verb + " " + strconv.QuoteToASCII(pattern)) // a contract bounds its patterns
	if utf8.RuneCountInString(pattern) <= maxPattern {
		return long
	}
	return Alternative(long, Prose(verb+" a pattern"))
}
