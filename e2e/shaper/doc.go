// Package shaper puts a line between two network namespaces, with delay, loss,
// reordering, duplicates, a bounded rate and a black hole, for machines whose kernel
// has no netem. It needs root, /dev/net/tun and the program ip of iproute2; on other
// systems than Linux it is empty.
package shaper
