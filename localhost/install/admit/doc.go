// Package admit refuses, before anything is installed, what could never start: an
// executable that this system cannot run itself, and a variable that a connection takes
// from nobody; and a source that has no manifest, or a bad one. It reads and changes nothing.
package admit
