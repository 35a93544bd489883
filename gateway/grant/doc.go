// Package grant is the form in which a frozen grant is kept: the surfaces that an
// invocation had at its first use, each as its own canonical bytes.
package grant
