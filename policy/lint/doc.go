// Package lint knows what is risky about a command that is to be lent: shells and
// programs that run other programs, options that do the same, options that name
// files or other servers, text that nothing bounds, and writes that name no
// resource.
//
// It is a list of known tricks, so it is a help to the owner and never a guard: the
// guard is that nothing undeclared is accepted. The package is pure.
package lint
