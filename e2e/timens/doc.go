// Package timens runs the real gateway in time namespaces, where the machine has
// been up for longer or shorter than outside, and stops it for a while as a suspend
// does.
package timens
