package layout

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/lendcli/lend/policy/strict"
)

// Format returns a file in canonical layout. What it returns has the same values in
// the same order and the same comments, and formatting it again changes nothing; where
// that cannot be had, the error matches ErrLayout and nothing is returned. Other errors
// are those of strict.Parse.
func Format(filename string, data []byte) ([]byte, error) {
	unix, _ := Unix(data)
	s, err := Read(filename, unix)
	if err != nil {
		return nil, err
	}
	out := write(s)
	if err := s.same(out); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", filename, ErrLayout, err)
	}
	return []byte(out), nil
}

// Why a text is not the same in another layout.
var (
	errValues   = errors.New("the result would mean something else")
	errComments = errors.New("a comment would be lost or moved")
	errAgain    = errors.New("the result would be laid out otherwise again")
)

// same tells what is wrong with a result.
func (s *Source) same(out string) error {
	again, err := Read(s.file, []byte(out))
	switch {
	case err != nil:
		return fmt.Errorf("the result could not be read: %w", err)
	case !strict.Equal(s.Root, again.Root):
		return errValues
	case !slices.Equal(s.commentTexts(), again.commentTexts()):
		return errComments
	case write(again) != out:
		return errAgain
	}
	return nil
}

func (s *Source) commentTexts() (out []string) {
	for _, c := range s.Comments {
		out = append(out, s.Text[c.From:c.To])
	}
	return out
}

func write(s *Source) string {
	w := &writer{s: s}
	root := s.Span(s.Root)
	if at := s.header(root.From); at >= 0 {
		w.before(at, 0)
		w.line(0, "---")
		w.last = s.Line(at)
		w.trailing(len(w.s.Text))
	}
	if s.Flow(s.Root) {
		w.before(root.From, 0)
		w.blank(root.From)
		w.line(0, "")
		w.flow(s.Root, 0)
		w.trailing(len(w.s.Text))
	} else {
		w.block(s.Root, 0)
	}
	w.before(len(s.Text), 0)
	w.end()
	return w.b.String()
}

// header is the offset of the mark that begins the document, -1 if there is none.
func (s *Source) header(before int) int {
	for at := 0; ; {
		at = s.skip(at)
		if at >= before {
			return -1
		}
		if strings.HasPrefix(s.Text[at:], "---") {
			return at
		}
		at++
	}
}

// writer lays out one document. Comments are written when what comes after them is.
type writer struct {
	s    *Source
	b    strings.Builder
	next int // of s.Comments
	last int // the line, in the source, of what was written last; 0: nothing was
	open bool
	dash bool // a dash was written, and its item has yet to come
}

// end ends the line that is being written.
func (w *writer) end() {
	if w.open {
		w.b.WriteByte('\n')
	}
	w.open = false
}

// line begins a new line with a text.
func (w *writer) line(indent int, text string) {
	w.end()
	w.b.WriteString(strings.Repeat(" ", indent) + text)
	w.open = true
}

func (w *writer) add(text string) { w.b.WriteString(text) }

// blank writes an empty line if the source has one before an offset, and something
// comes before it.
func (w *writer) blank(offset int) {
	line := w.s.Line(offset)
	if w.last == 0 || line-w.last < 2 {
		return
	}
	for l := w.last + 1; l < line; l++ {
		if strings.TrimSpace(w.s.Text[w.s.LineStart(l):w.s.LineStart(l+1)]) == "" {
			w.end()
			w.b.WriteByte('\n')
			return
		}
	}
}

// before writes the comments that come before an offset, each on a line of its own.
func (w *writer) before(offset, indent int) {
	w.while(indent, func(c Comment) bool { return c.From < offset })
}

// while writes comments as long as they belong here.
func (w *writer) while(indent int, here func(Comment) bool) {
	for w.next < len(w.s.Comments) && here(w.s.Comments[w.next]) {
		c := w.s.Comments[w.next]
		w.blank(c.From)
		w.line(indent, w.s.Text[c.From:c.To])
		w.next, w.last = w.next+1, c.Line
	}
}

// trailing writes the comment that follows on the line of the source where something
// has just ended, if it comes before an offset. It tells whether there was one.
func (w *writer) trailing(before int) bool {
	if w.next == len(w.s.Comments) {
		return false
	}
	c := w.s.Comments[w.next]
	if c.Own || c.Line != w.last || c.From >= before {
		return false
	}
	w.add(" " + w.s.Text[c.From:c.To])
	w.next++
	return true
}

// block writes a map or a list that is not in brackets, from a new line on, or after
// a dash.
func (w *writer) block(n *strict.Node, indent int) {
	at := w.s.Span(n)
	column := w.s.Column(at.From)
	for i, v := range n.Values {
		if n.Kind == strict.Map {
			w.pair(n.Keys[i], v, indent)
			continue
		}
		w.item(n, i, indent)
	}
	// Comments below the last value that are as far to the right belong to it; what is
	// as far to the left as what the collection is in does not.
	w.while(indent, func(c Comment) bool {
		return c.Own && w.s.Column(c.From) >= column && column > 0 && c.From < w.after(at.To) && w.s.Column(c.From) > w.outer(at.From)
	})
}

// after is the offset of the next thing that is no comment.
func (w *writer) after(offset int) int { return w.s.skip(offset) }

// outer is the column of the line's key, or of the dash, that a collection is under;
// -1 for the document.
func (w *writer) outer(from int) int {
	line := w.s.Text[w.s.LineStart(w.s.Line(from)):from]
	if strings.Trim(line, " -") == "" && strings.Contains(line, "-") {
		return strings.LastIndex(line, "-") // after a dash
	}
	column := len(line)
	at := w.s.LineStart(w.s.Line(from))
	for at > 0 {
		end := at - 1
		at = w.s.LineStart(w.s.Line(end))
		text := w.s.Text[at:end]
		trimmed := strings.TrimLeft(text, " ")
		indent := len(text) - len(trimmed)
		if trimmed == "" || trimmed[0] == '#' {
			continue
		}
		if indent < column || indent == column && w.s.Text[from] == '-' && trimmed[0] != '-' {
			return indent
		}
	}
	return -1
}

// begin writes what comes before a key or an item and starts its line, unless it is
// the first after a dash.
func (w *writer) begin(offset, indent int) {
	if w.dash {
		w.dash = false
		if w.next < len(w.s.Comments) && w.s.Comments[w.next].From < offset {
			w.trailing(len(w.s.Text))
		} else {
			w.add(" ")
			return
		}
	}
	w.before(offset, indent)
	w.blank(offset)
	w.line(indent, "")
}

func (w *writer) pair(k, v *strict.Node, indent int) {
	at := w.s.Span(k)
	w.begin(at.From, indent)
	w.add(w.s.Text[at.From:at.To] + ":")
	w.last = w.s.Line(at.To)
	w.value(v, indent)
}

// item writes one item of a list, with its dash.
func (w *writer) item(n *strict.Node, i, indent int) {
	v := n.Values[i]
	dash := w.dashOf(v)
	w.begin(dash, indent)
	w.add("-")
	w.last = w.s.Line(dash)
	if (v.Kind == strict.Map || v.Kind == strict.List) && !w.s.Flow(v) {
		w.dash = true
		w.block(v, indent+2)
		return
	}
	w.value(v, indent)
}

// dashOf is the offset of the dash before an item.
func (w *writer) dashOf(v *strict.Node) int {
	at := w.s.Span(v).From
	for at--; at > 0; at-- {
		if w.s.Text[at] != '-' {
			continue
		}
		if inComment := slices.ContainsFunc(w.s.Comments, func(c Comment) bool { return c.From <= at && at < c.To }); !inComment {
			return at
		}
	}
	return max(at, 0)
}

// value writes what is under a key or a dash on the line indent.
func (w *writer) value(v *strict.Node, indent int) {
	at := w.s.Span(v)
	switch {
	case (v.Kind == strict.Map || v.Kind == strict.List) && !w.s.Flow(v):
		w.trailing(len(w.s.Text))
		w.block(v, indent+2)
		return
	case w.s.Flow(v):
		w.add(" ")
		w.flow(v, indent)
	case v.Quoted && strings.IndexByte("|>", w.s.Text[at.From]) >= 0:
		w.add(" ")
		w.literal(at, indent)
		return
	default:
		w.add(" " + w.scalar(at, indent))
		w.last = w.s.Line(at.To)
	}
	w.trailing(len(w.s.Text))
}

// scalar is a text in one line, or a quoted one in several, indented.
func (w *writer) scalar(at Span, indent int) string {
	lines := strings.Split(w.s.Text[at.From:at.To], "\n")
	for i := range lines[1:] {
		lines[i+1] = strings.TrimSpace(lines[i+1])
		if lines[i+1] != "" {
			lines[i+1] = strings.Repeat(" ", indent+2) + lines[i+1]
		}
		lines[i] = strings.TrimRight(lines[i], " \t")
	}
	return strings.Join(lines, "\n")
}

// literal writes a text that begins with | or >, indented anew.
func (w *writer) literal(at Span, indent int) {
	lines := strings.Split(strings.TrimRight(w.s.Text[at.From:at.To], "\n"), "\n")
	least := -1
	for _, l := range lines[1:] {
		if n := len(l) - len(strings.TrimLeft(l, " ")); strings.TrimSpace(l) != "" && (least < 0 || n < least) {
			least = n
		}
	}
	w.add(strings.TrimRight(lines[0], " \t"))
	for w.next < len(w.s.Comments) && w.s.Comments[w.next].From < at.To {
		w.next++ // a comment after the mark is a part of its line
	}
	for _, l := range lines[1:] {
		w.b.WriteByte('\n')
		if strings.TrimSpace(l) != "" {
			w.add(strings.Repeat(" ", indent+2) + l[least:])
		}
	}
	w.last = w.s.Line(at.To - 1)
}
