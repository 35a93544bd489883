// Package layout knows where everything is in the text of a policy file, comments
// included, and lays it out anew.
//
//	Read    text → Source: the span of every value, and the comments
//	Format  text → the same in canonical layout
//
// The canonical layout indents by two spaces, has one space after a colon, a comma, a
// dash and before a comment that follows something, at most one blank line in a row,
// and line feeds. Order, quotes, flow or block style, the line breaks inside brackets and
// the text of comments stay as the owner wrote them.
//
// Nothing is taken on trust: what Format returns was read again, and has the same
// values in the same order and the same comments as what came in. The package is pure.
package layout
