// Package text checks input that has to be text and comes in pieces.
//
// It keeps at most the beginning of one rune.
package text
