// Package name holds the checked value types that cross every boundary of
// lend: connector keys, versions, commands, operation and invocation IDs, peer
// IDs. Code that holds one of these values holds a valid one: the only ways to
// get a non-zero value are the Parse functions (and UnmarshalText, which calls
// them). The zero value of each type means "absent" and is never valid input.
//
// The values are comparable, small and immutable; they may be used as map keys
// and from any goroutine. Quote makes text that came from elsewhere safe to
// show in a log, a terminal or a page.
//
// The grammars are those of docs/glossary.md. The package imports nothing of
// ours.
package name
