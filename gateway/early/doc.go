// Package early remembers which operations were cancelled before they were started,
// for as long as their lease could start them, in a file that outlives the gateway.
package early
