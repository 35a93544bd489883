// Package file reads the owner's policy file: what it says, checked against the
// tables of the format and in itself, with the place of everything.
//
//	Parse    bytes → *File, or strict.Problems
//	Schema   the tables as a JSON Schema for editors
//
// A File is what was written: names are resolved and values are parsed, and nothing
// is decided here. Package surface joins its rules with the contracts of Connectors;
// package policy decides. The package is pure, and a File is immutable. See
// docs/policy.md.
package file
