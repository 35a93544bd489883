// Package binary tells native executables from everything else, by their first
// bytes: ELF, Mach-O (one system or several) and PE, and for which processor.
//
//	Read            head of a file → Header
//	Header.RunsOn   whether this operating system and processor can start it
//
// It reads headers only: it does not say that a file is whole, harmless, or that
// the libraries it wants are there. The package is pure; values may be used from any
// goroutine.
package binary
