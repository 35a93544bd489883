// Package replay decides requests under two policy files and tells the answers that
// differ: the tests of both files, what the ledger has of late, and what runs.
//
//	Policies  old, new, contracts, Corpus → Report
//
// Of the ledger only commands are known, since arguments are not recorded: such a
// request is allowed if a rule gives the command at all. It shows what a change would
// have meant, beside package compare, which tells what it can mean. The package is pure.
package replay
