package layout

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/lendcli/lend/policy/file"
	"github.com/lendcli/lend/policy/strict"
)

// ErrLayout says that a file is written in a way that this package cannot follow,
// although it can be read. The text names the place.
var ErrLayout = errors.New("the layout cannot be followed")

// Source is the text of one document with the place of everything in it. It is
// immutable.
type Source struct {
	Text string // with line feeds alone
	Root *strict.Node
	// Comments in their order.
	Comments []Comment

	file   string
	starts []int // offset of each line
	spans  map[*strict.Node]Span
	flow   map[*strict.Node]bool
}

// Span is a part of the text, in bytes; To is excluded.
type Span struct{ From, To int }

// Comment is one comment with its "#", without what follows it.
type Comment struct {
	Span

	Line int // from 1
	// Own tells that nothing comes before it on its line.
	Own bool
}

// Read finds everything in a document that strict.Parse accepts. The text must not
// have carriage returns: Unix makes it so. The error is that of strict.Parse, or
// matches ErrLayout.
func Read(filename string, data []byte) (*Source, error) {
	doc, err := strict.Parse(filename, data, file.MaxSize)
	if err != nil {
		return nil, err
	}
	if err := doc.Err(); err != nil {
		return nil, err
	}
	s := &Source{Text: string(data), Root: doc.Root, file: filename, starts: []int{0}, spans: map[*strict.Node]Span{}, flow: map[*strict.Node]bool{}}
	if i := strings.IndexByte(s.Text, '\r'); i >= 0 {
		return nil, fmt.Errorf("%s: %w: it has carriage returns", filename, ErrLayout)
	}
	for i := range len(s.Text) {
		if s.Text[i] == '\n' {
			s.starts = append(s.starts, i+1)
		}
	}
	if _, err := s.measure(s.Root, 0); err != nil {
		return nil, err
	}
	s.findComments()
	return s, nil
}

// Unix replaces the line ends of other systems by line feeds; dos tells that all
// were of the other kind, so that Dos gives the same bytes back.
func Unix(data []byte) (text []byte, dos bool) {
	s := string(data)
	n := strings.Count(s, "\r\n")
	return []byte(strings.ReplaceAll(s, "\r\n", "\n")), n > 0 && n == strings.Count(s, "\n")
}

// Dos is the opposite of Unix.
func Dos(text []byte) []byte { return []byte(strings.ReplaceAll(string(text), "\n", "\r\n")) }

// Span returns where a node is: a scalar with its quotes, a flow collection with its
// brackets, a block collection from its first key or dash to the end of its last value.
func (s *Source) Span(n *strict.Node) Span { return s.spans[n] }

// Flow tells whether a collection is written in brackets.
func (s *Source) Flow(n *strict.Node) bool { return s.flow[n] }

// Line returns the number of the line, from 1, that holds an offset.
func (s *Source) Line(offset int) int {
	low, high := 0, len(s.starts)
	for low+1 < high {
		if mid := (low + high) / 2; s.starts[mid] <= offset {
			low = mid
		} else {
			high = mid
		}
	}
	return low + 1
}

// LineStart returns the offset at which a line begins; that of the end of the text
// for a line after the last.
func (s *Source) LineStart(line int) int {
	if line > len(s.starts) {
		return len(s.Text)
	}
	return s.starts[line-1]
}

// Column returns how many bytes come before an offset on its line.
func (s *Source) Column(offset int) int { return offset - s.starts[s.Line(offset)-1] }

func (s *Source) lost(n *strict.Node, what string) error {
	return fmt.Errorf("%s:%d:%d: %w: %s", s.file, n.Line, n.Column, ErrLayout, what)
}

// offset finds the place of a node, whose column counts runes.
func (s *Source) offset(n *strict.Node) (int, error) {
	if n.Line < 1 || n.Line > len(s.starts) {
		return 0, s.lost(n, "there is no such line")
	}
	at := s.starts[n.Line-1]
	for range n.Column - 1 {
		if at >= len(s.Text) || s.Text[at] == '\n' {
			return 0, s.lost(n, "the line is shorter")
		}
		_, size := utf8.DecodeRuneInString(s.Text[at:])
		at += size
	}
	if at >= len(s.Text) {
		return 0, s.lost(n, "the text is shorter")
	}
	return at, nil
}

// measure finds the span of a node and of all below it, and returns its end. From is
// an offset before which it cannot begin.
func (s *Source) measure(n *strict.Node, from int) (int, error) {
	if n.Kind == strict.Null || n.Kind == strict.Bad {
		return 0, s.lost(n, "there is no value")
	}
	at, err := s.offset(n)
	if err != nil {
		return 0, err
	}
	if at < from {
		return 0, s.lost(n, "it is before what comes before it")
	}
	var end int
	switch n.Kind {
	case strict.Map, strict.List:
		end, err = s.measureCollection(n, at)
	default:
		end, err = s.measureScalar(n, at)
	}
	s.spans[n] = Span{at, end}
	return end, err
}

func (s *Source) measureCollection(n *strict.Node, at int) (int, error) {
	open := s.Text[at]
	flow := n.Kind == strict.Map && open == '{' || n.Kind == strict.List && open == '['
	end := at
	if flow {
		s.flow[n] = true
		end++
	}
	if !flow && n.Kind == strict.List && open != '-' {
		return 0, s.lost(n, "a list begins with a dash or a bracket")
	}
	if !flow && len(n.Values) == 0 {
		return 0, s.lost(n, "it is empty")
	}
	for i, v := range n.Values {
		var err error
		if n.Kind == strict.Map {
			if end, err = s.measure(n.Keys[i], end); err != nil {
				return 0, err
			}
			if end = s.skip(end); end >= len(s.Text) || s.Text[end] != ':' {
				return 0, s.lost(n.Keys[i], "no colon follows the key")
			}
			end++
		}
		if end, err = s.measure(v, end); err != nil {
			return 0, err
		}
		if !flow {
			continue
		}
		if end = s.skip(end); end < len(s.Text) && s.Text[end] == ',' {
			end++
		}
	}
	if !flow {
		return end, nil
	}
	end = s.skip(end)
	if end >= len(s.Text) || s.Text[end] != open+2 { // { and }, [ and ]
		return 0, s.lost(n, "its bracket is not closed where it should be")
	}
	return end + 1, nil
}

// skip passes over space and comments.
func (s *Source) skip(at int) int {
	for at < len(s.Text) {
		switch c := s.Text[at]; {
		case c == ' ' || c == '\t' || c == '\n':
			at++
		case c == '#':
			for at < len(s.Text) && s.Text[at] != '\n' {
				at++
			}
		default:
			return at
		}
	}
	return at
}

func (s *Source) measureScalar(n *strict.Node, at int) (int, error) {
	rest := s.Text[at:]
	switch {
	case !n.Quoted:
		if !strings.HasPrefix(rest, n.Text) {
			return 0, s.lost(n, "another text is here")
		}
		return at + len(n.Text), nil
	case rest[0] == '\'':
		for i := 1; i < len(rest); i++ {
			if rest[i] != '\'' {
				continue
			}
			if i+1 < len(rest) && rest[i+1] == '\'' {
				i++
				continue
			}
			return at + i + 1, nil
		}
	case rest[0] == '"':
		for i := 1; i < len(rest); i++ {
			switch rest[i] {
			case '\\':
				i++
			case '"':
				return at + i + 1, nil
			}
		}
	case rest[0] == '|' || rest[0] == '>':
		return s.measureBlock(at), nil
	}
	return 0, s.lost(n, "the text does not end")
}

// measureBlock finds the end of a text that begins with | or >: before the first line
// that is not empty and not indented more than the line of the mark.
func (s *Source) measureBlock(at int) int {
	line := s.Line(at)
	first := s.Text[s.starts[line-1]:]
	indent := len(first) - len(strings.TrimLeft(first, " -"))
	end := s.LineStart(line + 1)
	for line++; line <= len(s.starts); line++ {
		from, to := s.starts[line-1], s.LineStart(line+1)
		text := s.Text[from:to]
		if strings.TrimSpace(text) == "" {
			continue
		}
		if len(text)-len(strings.TrimLeft(text, " ")) <= indent {
			break
		}
		end = to
	}
	return end
}

// findComments looks at everything that is in no scalar.
func (s *Source) findComments() {
	inside := make([]int, len(s.Text)+1) // offset → end of the scalar that begins there
	for n, at := range s.spans {
		if n.Kind != strict.Map && n.Kind != strict.List {
			inside[at.From] = at.To
		}
	}
	for at := 0; at < len(s.Text); {
		switch {
		case inside[at] > at:
			at = inside[at]
		case s.Text[at] == '#':
			end := at
			for end < len(s.Text) && s.Text[end] != '\n' {
				end++
			}
			line := s.Line(at)
			s.Comments = append(s.Comments, Comment{
				Span{at, at + len(strings.TrimRight(s.Text[at:end], " \t"))},
				line,
				strings.TrimSpace(s.Text[s.starts[line-1]:at]) == "",
			})
			at = end
		default:
			at++
		}
	}
}
