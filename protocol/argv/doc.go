// Package argv is the one grammar of arguments: a command has parameters, each
// with a schema and a place. Manifests and policies declare it, command lines
// and agents speak it, and the child gets one canonical spelling of what it
// accepted.
//
//	declare    Contract, Command, Parameter, Schema       Validate
//	narrow     Command.Narrow                             a conjunction: never wider
//	accept     Grammar.Parse (argv), FromObject (JSON)    → Call, or *Error
//	describe   Grammar.InputSchema                        JSON Schema for agents
//
// Whatever is not declared is refused: unknown flags, clusters, abbreviations,
// repeats, option-like positionals, a lone "-" that no const or enum names, file
// references ("@file", "file://"), NUL and control characters. Limits count after
// rendering. The package is pure: no files, clock, network or logger; all values
// may be used from any goroutine once they are built. See docs/policy.md.
package argv
