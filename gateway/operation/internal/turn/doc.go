// Package turn is the lock of a stream's frames: it is held while they are written,
// which may last as long as the other end pleases.
//
// Turns are not given in the order of the calls. The zero Turn is free.
package turn
