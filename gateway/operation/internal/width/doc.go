// Package width makes the pipes of operations that move many bytes hold more of them, so
// that the two ends wait for each other less often.
package width
