package layout

import (
	"strings"

	"github.com/lendcli/lend/policy/strict"
)

// flow writes a collection in brackets. Where the source has a line break between two
// of its parts, so has the result.
func (w *writer) flow(n *strict.Node, indent int) {
	at := w.s.Span(n)
	w.add(w.s.Text[at.From : at.From+1])
	w.last = w.s.Line(at.From)
	begins := func(i int) int {
		switch {
		case i == len(n.Values):
			return at.To - 1
		case n.Kind == strict.Map:
			return w.s.Span(n.Keys[i]).From
		}
		return w.s.Span(n.Values[i]).From
	}
	commented := w.trailing(begins(0))
	for i := range n.Values {
		from := begins(i)
		// A comment between a key and its value is put before both.
		commented = w.flowComments(w.s.Span(n.Values[i]).From, indent+2) || commented
		switch {
		case commented || w.s.Line(from) > w.last:
			w.line(indent+2, "")
		case i > 0:
			w.add(" ")
		}
		w.flowItem(n, i, indent)
		if i < len(n.Values)-1 {
			w.add(",")
		}
		commented = w.trailing(begins(i + 1))
	}
	commented = w.flowComments(at.To-1, indent+2) || commented
	if commented || w.s.Line(at.To-1) > w.last && len(n.Values) > 0 {
		w.line(indent, "")
	}
	w.add(w.s.Text[at.To-1 : at.To])
	w.last = w.s.Line(at.To - 1)
}

// flowComments writes the comments before an offset that are on lines of their own,
// or stand where none can.
func (w *writer) flowComments(offset, indent int) bool {
	begin := w.next
	for w.next < len(w.s.Comments) && w.s.Comments[w.next].From < offset {
		c := w.s.Comments[w.next]
		w.line(indent, w.s.Text[c.From:c.To])
		w.next, w.last = w.next+1, c.Line
	}
	return w.next > begin
}

func (w *writer) flowItem(n *strict.Node, i, indent int) {
	v := n.Values[i]
	if n.Kind == strict.Map {
		k := w.s.Span(n.Keys[i])
		w.add(w.s.Text[k.From:k.To] + ": ")
		w.last = w.s.Line(k.To)
	}
	if w.s.Flow(v) {
		w.flow(v, indent+2)
		return
	}
	at := w.s.Span(v)
	w.add(strings.TrimRight(w.scalar(at, indent+2), "\n"))
	w.last = w.s.Line(at.To - 1)
}
