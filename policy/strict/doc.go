// Package strict reads one YAML document so strictly that nobody can be wrong
// about what it says, and reports what is wrong with file:line:column, the source
// line and a suggestion.
//
// Refused are: byte order marks, control and direction-changing characters, invalid
// UTF-8, anchors, aliases, merge keys, tags, directives, a second document, complex
// and duplicate keys, nesting deeper than 32, words that some YAML version reads as
// a boolean or null (on, yes, ~) and numbers in any spelling but the plain one
// (010, 1.0, 0x10, 1_000). A text that looks like any of these is written in quotes.
//
//	Parse   bytes → Node with positions
//	Shape   a table of what a document may hold: checks a Node, and writes itself as
//	        JSON Schema, so that editors and the loader agree
//
// The package is pure and imports nothing of ours but protocol/name.
package strict
