package strict

import (
	"fmt"
	"strings"
)

// MaxProblems bounds how many problems one reading reports.
const MaxProblems = 20

// Position is a place in a file; lines and columns (in runes) count from 1.
type Position struct {
	File   string `json:"file"`
	Line   int    `json:"line"`
	Column int    `json:"column"`
}

// String returns file:line:column.
func (p Position) String() string { return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column) }

// Problem is one thing that is wrong with a file.
type Problem struct {
	Position Position `json:"position"`
	Message  string   `json:"message"`
	Hint     string   `json:"hint,omitempty"`   // what to write instead
	Source   string   `json:"source,omitempty"` // the line, made safe to print and cut around the column
	Caret    int      `json:"caret,omitempty"`  // column of the place in Source, from 1
	// Rule names a constraint that the JSON Schema does not have ("reference",
	// "unique", "quoted", …); "" if the schema has it too.
	Rule string `json:"-"`
}

// Error returns one line: file:line:column: message (hint).
func (p Problem) Error() string {
	s := p.Position.String() + ": " + p.Message
	if p.Hint != "" {
		s += " (" + p.Hint + ")"
	}
	return s
}

// Problems are what is wrong with one file.
type Problems []Problem

// Error returns each problem with its source line and a caret below the place.
func (ps Problems) Error() string {
	var b strings.Builder
	for i, p := range ps {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(p.Error())
		if p.Source != "" {
			number := fmt.Sprintf("%5d | ", p.Position.Line)
			fmt.Fprintf(&b, "\n%s%s\n%s%s^", number, p.Source, strings.Repeat(" ", len(number)-2)+"| ", strings.Repeat(" ", p.Caret-1))
		}
	}
	return b.String()
}
