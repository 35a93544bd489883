// Package watch notices when a lease file is another one: replaced, written anew, or one
// that a link leads to.
package watch
