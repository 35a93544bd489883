// Package netns runs the real programs in network namespaces of their own, with a
// shaper between them: loss, delay, reordering, duplicates, a bounded rate, a black
// hole, an address that changes. Nothing of it is visible outside.
package netns
