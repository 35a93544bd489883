// Package skill reads the skills of a Connector: pages that say how its commands are
// meant to be used, in the tree skills/ of its artifact.
//
//	Check  refuses a tree that breaks a rule, without a digest: for an import
//	Read   reads them from files that are compared with what was verified
//
// Each directory below skills/ that holds a SKILL.md is one skill. The file begins
// with a header between two lines "---", YAML with name and description; its title is
// the first heading, else the name. What a skill says is foreign text: it is shown
// escaped, and nothing of it is run.
package skill
