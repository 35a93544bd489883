// Package probe finds out whether the CLIs of the current routes are ready, by
// running the probe that a release declares: exit status 0 is ready.
//
//	New            begins, in a goroutine of its own, until Close
//	Prober.Of      what is known of one route
//	Prober.All     of all current routes, with a revision
//	Prober.Changed newer than what was seen
//
// A probe is a start like any other: through StartCLI, with the exact identity of the
// route, so verified before it runs, in a copy of the connection's home and with
// nothing but that connection's settings and secrets. It has no input, at most its own
// timeout and MaxOutput bytes of each output, which nobody keeps. One runs at a time,
// first when a route is published, and then about every five minutes.
//
// What it finds is shown to the owner and decides nothing: a route that is not ready
// is current, resolves and starts as any other. See docs/localhost.md.
package probe
