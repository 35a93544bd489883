// Package interpreter lays out the interpreters that Connectors run on, for a store
// to hash and keep. Those of the system are never used in place.
//
//	Source.Lay   a tree from a managed package (node, npm), an archive or an executable
//	Tried, Target, ABI, Env
//
// node and npm are exact npm packages, checked by sha512 before they are unpacked.
// An archive is one that the owner gives with its SHA-256: a Python with its
// standard library, in any of the layouts that it is found by itself in. It is asked
// once for its version and for where its library is, after all of it was checked.
// Anything else is one executable, copied; its library stays the system's.
package interpreter
