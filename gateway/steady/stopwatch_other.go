//go:build !linux

package steady

import "time"

// Stopwatch tells how much time goes by.
func Stopwatch() func() time.Duration {
	begun := time.Now()
	return func() time.Duration { return time.Since(begun) }
}
