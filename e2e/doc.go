// Package e2e holds the tests that look at the whole: scripts on the real
// binary, repository rules (imports, budgets, documents), and the harnesses that
// crash, attack and simulate. It has no code that ships.
package e2e
