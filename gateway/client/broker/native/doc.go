// Package native is about command lines as their CLI has them: "issue list --limit 5".
//
//	WordsOf  how the command line of a lent command begins, from the gateway's catalogue
//	Choose   the one lent command that a command line means
//	Help     what to tell of, to somebody whose command line asks for help
//
// Exactly one match, or nothing runs: a command line that could be more than one lent
// command is none. The package knows no lease, no connection and no session. See
// docs/broker.md.
package native
