package strict

import (
	"slices"
	"strings"
	"unicode"
)

// Document is one parsed file and what was found wrong with it so far.
type Document struct {
	Root     *Node
	file     string
	text     string
	problems Problems
}

// Position returns the place of a node.
func (d *Document) Position(n *Node) Position {
	if n == nil {
		return Position{File: d.file, Line: 1, Column: 1}
	}
	return Position{File: d.file, Line: n.Line, Column: n.Column}
}

// Add reports a problem with a node and makes the node Bad; a node that is Bad
// already is passed over, so that one mistake is reported once. Rule names a
// constraint that the JSON Schema cannot express, or is "".
func (d *Document) Add(n *Node, rule, message, hint string) {
	if n == nil {
		d.at(1, 1, rule, message, hint)
		return
	}
	for _, p := range d.problems {
		if n.Kind == Bad && p.Position.Line == n.Line && p.Position.Column == n.Column {
			return
		}
	}
	n.Kind = Bad
	d.at(n.Line, n.Column, rule, message, hint)
}

// at reports a problem and returns false.
func (d *Document) at(line, column int, rule, message, hint string) bool {
	p := Problem{Position: Position{d.file, line, column}, Message: message, Hint: hint, Rule: rule}
	d.problems = append(d.problems, p)
	return false
}

// Err returns the first MaxProblems problems in the order of their positions, as a
// Problems, or nil.
func (d *Document) Err() error {
	if len(d.problems) == 0 {
		return nil
	}
	ps := slices.Clone(d.problems)
	slices.SortStableFunc(ps, func(a, b Problem) int {
		if a.Position.Line != b.Position.Line {
			return a.Position.Line - b.Position.Line
		}
		return a.Position.Column - b.Position.Column
	})
	ps = ps[:min(len(ps), MaxProblems)]
	lines := strings.SplitN(d.text, "\n", ps[len(ps)-1].Position.Line+1)
	for i := range ps {
		if l := ps[i].Position.Line; l <= len(lines) {
			ps[i].Source, ps[i].Caret = excerpt(lines[l-1], ps[i].Position.Column)
		}
	}
	return ps
}

const excerptWidth = 100 // runes of a source line that are shown

// excerpt cuts a line around a column and replaces what cannot be shown safely.
func excerpt(line string, column int) (string, int) {
	runes := []rune(strings.TrimRight(line, "\r"))
	if column < 1 || column > len(runes)+1 {
		return "", 0
	}
	start := 0
	if column > excerptWidth*3/4 {
		start = column - excerptWidth/2
	}
	end := min(len(runes), start+excerptWidth)
	out := slices.Clone(runes[start:end])
	for i, r := range out {
		switch {
		case r == '\t':
			out[i] = ' '
		case !unicode.IsPrint(r):
			out[i] = '?'
		}
	}
	if start > 0 {
		out[0] = '…'
	}
	if end < len(runes) {
		out = append(out, '…')
	}
	return strings.TrimRight(string(out), " "), column - start
}
