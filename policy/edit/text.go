package edit

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/lendcli/lend/policy/layout"
	"github.com/lendcli/lend/policy/strict"
	"github.com/lendcli/lend/protocol/argv"
)

// change replaces a part of the text.
type change struct {
	layout.Span

	text string
}

// apply makes changes, which do not overlap; an insertion where another begins was
// made first.
func apply(text string, changes []change) string {
	slices.SortStableFunc(changes, func(a, b change) int { return cmp.Compare(a.From, b.From) })
	var b strings.Builder
	at := 0
	for _, c := range changes {
		b.WriteString(text[at:c.From] + c.text)
		at = c.To
	}
	return b.String() + text[at:]
}

// sheet is a text with the changes that are to be made in it.
type sheet struct {
	*layout.Source

	changes []change
}

func (s *sheet) replace(at layout.Span, text string) { s.changes = append(s.changes, change{at, text}) }

func (s *sheet) insert(at int, text string) { s.replace(layout.Span{From: at, To: at}, text) }

func (s *sheet) done() string { return apply(s.Text, s.changes) }

// lineEnd is the offset after the line that holds the last byte of a span, its line
// feed included.
func (s *sheet) lineEnd(at layout.Span) int {
	if at.To > 0 && s.Text[at.To-1] == '\n' {
		return at.To
	}
	return s.LineStart(s.Line(at.To) + 1)
}

// below inserts whole lines after the line that holds the last byte of a span, and
// after comments that are further to the right than column.
func (s *sheet) below(at layout.Span, column int, lines string) {
	end := s.lineEnd(at)
	for _, c := range s.Comments {
		if c.Own && c.From >= end && s.LineStart(c.Line) == end && s.Column(c.From) > column {
			end = s.LineStart(c.Line + 1)
		}
	}
	if end > 0 && s.Text[end-1] != '\n' {
		lines = "\n" + strings.TrimSuffix(lines, "\n")
	}
	s.insert(end, lines)
}

// atEnd inserts lines at the end of the text, after an empty line.
func (s *sheet) atEnd(lines string) {
	switch {
	case !strings.HasSuffix(s.Text, "\n"):
		lines = "\n\n" + lines
	case !strings.HasSuffix(s.Text, "\n\n"):
		lines = "\n" + lines
	}
	s.insert(len(s.Text), lines)
}

// addPair adds a key to a map that is under a key: in its last line, or below it.
// Inline is the value in one line.
func (s *sheet) addPair(key, m *strict.Node, name, inline string) {
	at := s.Span(m)
	switch {
	case len(m.Keys) == 0 && (s.Flow(s.Root) || s.Line(at.From) != s.Line(at.To)):
		s.insert(at.From+1, name+": "+inline)
	case len(m.Keys) == 0:
		s.unfold(at)
		column := s.Column(s.Span(key).From) + 2
		s.below(at, column, strings.Repeat(" ", column)+name+": "+inline+"\n")
	case s.Flow(m):
		s.insert(s.Span(m.Values[len(m.Values)-1]).To, ", "+name+": "+inline)
	default:
		column := s.Column(at.From)
		s.below(at, column, strings.Repeat(" ", column)+name+": "+inline+"\n")
	}
}

// unfold takes an empty {} or [] away, with the space before it.
func (s *sheet) unfold(at layout.Span) {
	for at.From > 0 && s.Text[at.From-1] == ' ' {
		at.From--
	}
	s.replace(at, "")
}

// within is a part of the text with the changes, all of which are in it.
func (s *sheet) within(at layout.Span) string {
	for i := range s.changes {
		s.changes[i].From -= at.From
		s.changes[i].To -= at.From
	}
	return apply(s.Text[at.From:at.To], s.changes)
}

// part is one key with its value, or one item, with its dash if it has one.
func (s *sheet) part(n *strict.Node, i int) layout.Span {
	at := s.Span(n.Values[i])
	switch {
	case n.Kind == strict.Map:
		at.From = s.Span(n.Keys[i]).From
	case !s.Flow(n):
		at.From = s.dash(at.From)
	}
	return at
}

// dash is the offset of the dash before an item, which may be on a line above it.
func (s *sheet) dash(at int) int {
	for at--; at > 0; at-- {
		if s.Text[at] == '-' && !slices.ContainsFunc(s.Comments, func(c layout.Comment) bool { return c.From <= at && at < c.To }) {
			break
		}
	}
	return max(at, 0)
}

// remove takes some of the parts of a collection away, but not all of them. A comment
// on a line that goes, goes with it.
func (s *sheet) remove(n *strict.Node, gone func(i int) bool) {
	last := -1 // of those that stay
	for i := range n.Values {
		if !gone(i) {
			last = i
		}
	}
	for i := range n.Values {
		if !gone(i) {
			continue
		}
		at := s.part(n, i)
		switch {
		case s.Flow(n):
		case strings.TrimSpace(s.Text[s.LineStart(s.Line(at.From)):at.From]) != "": // the first key, after a dash
			if i+1 < len(n.Values) {
				at.To = len(s.Text) - len(strings.TrimLeft(s.Text[at.To:], " \n"))
			}
		default:
			at = layout.Span{From: s.LineStart(s.Line(at.From)), To: s.lineEnd(at)}
		}
		switch {
		case !s.Flow(n):
		case i < last:
			at.To = s.part(n, i+1).From
		default:
			at.From = s.Span(n.Values[i-1]).To
		}
		s.replace(at, "")
	}
}

// plain fits texts that need no quotes wherever they stand.
var plain = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_./+-]*( [A-Za-z0-9][A-Za-z0-9_./+-]*)*$`)

// spell writes a text as a YAML scalar, in quotes where it could be taken for anything
// else.
func spell(s string) string {
	if plain.MatchString(s) {
		doc, err := strict.Parse("", []byte("v: "+s+"\n"), len(s)+8)
		if err == nil && doc.Err() == nil && doc.Root.Get("v").Str() == s {
			return s
		}
	}
	return strconv.Quote(s)
}

// spellAs writes a value of a parameter; numbers and booleans are none in quotes.
func spellAs(t argv.Type, s string) string {
	if t == argv.TypeString || t == "" {
		return spell(s)
	}
	return s
}

// flow writes a list in one line.
func flow(items []string) string { return "[" + strings.Join(items, ", ") + "]" }
