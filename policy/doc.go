// Package policy holds what an owner allows: one strict YAML file, deny by
// default, whose allow rules are a union in which order means nothing.
//
//	Parse            bytes → *Policy, or Problems with file:line:column
//	Policy.Lint      what is wrong or risky, given the Connectors' contracts
//	Policy.RunTests  the file's own tests
//	Policy.Access    who may do what, in sentences
//	Policy.Decide    one request → Decision; Policy.Explain shows its stages
//	Policy.Freeze    the surfaces of an invocation, kept from its first use on
//	Policy.DecideWithin  what both the frozen surfaces and the policy allow
//
// The package is pure: no files, clock, network or logger. The caller reads the
// file and checks its permissions; the time comes in the Request; the contracts
// of the Connectors come through the Contracts interface. A *Policy is immutable
// apart from a cache of compiled grammars, and safe for concurrent use.
//
// Every error and every panic below Decide denies. See docs/policy.md.
package policy
