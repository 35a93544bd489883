// Package argv is the one grammar of arguments: a command has parameters, each
// with a schema and a place. Manifests and policies declare it, command lines
// and agents speak it, and the child gets one canonical spelling of what it
// accepted.
//
//	declare    Declaration → Command, Contract            Validate
//	narrow     Command.Narrow                             a conjunction: never wider
//	compile    Command.Compile → Grammar                  safe for concurrent use
//	accept     Grammar.Parse (argv), FromObject (JSON)    → Call, or *Error
//	describe   Grammar.InputSchema                        JSON Schema for agents
//	identify   Contract.Semantics, CanonicalJSON          what a contract hash covers
//
// Whatever is not declared is refused: unknown flags, clusters ("-abc"), attached
// values ("-ovalue", "-o=value"), abbreviations, repeats, option-like values, a
// lone "-", file references ("@file", "file:/…", also after "key="), NUL, control
// and bidirectional characters, text that is not UTF-8. Only what the declared
// schema lists word by word (enum, const) may look like an option, a "-" or a
// file reference; an empty string needs that or min_length 0.
//
// The rendering: the fixed arguments of contract and command; flags, by the name
// of their parameter; "--" if end_of_options says so and a positional argument
// follows; positions by number; the tail. It reads as itself. A parameter for an
// environment variable is said as "--name" and never rendered. Limits count after
// rendering, each argument with the NUL that ends it.
//
// The package is pure: no files, clock, network or logger. Errors hold no value
// that a caller gave. ADRs 20 to 22 say why it is as it is; testdata/corpus holds
// command lines of real CLIs, admitted and refused. See docs/policy.md.
package argv
