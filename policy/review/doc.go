// Package review says what an owner should know of a policy file before it is
// served: Lint, what does not fit the Connectors or is risky; Access, who may do
// what, in sentences.
//
// It looks at the file together with the contracts of the Connectors, by the code
// that decides (package surface), so that a sentence is never better than what
// happens. The package is pure. See docs/policy.md §8.
package review
