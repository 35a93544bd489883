// Package outbox holds what a caller sends on the run streams of one operation after
// the first frame: input, acknowledgements, and the last word. It outlives any one
// stream: what was sent and not acknowledged is kept until it is, so another
// stream can go on with it.
//
// One goroutine writes, from the first thing that is to be sent until Done, which waits
// for it; if there was none, Done writes the last word itself. The one that reads a stream
// only leaves word here and never waits for a write; otherwise both ends could wait for
// each other once the windows of both directions are full.
//
// A Box may be used from several goroutines; no lock is held during a write.
package outbox
