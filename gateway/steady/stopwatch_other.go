//go:build !linux

package steady

import "time"

// stopwatch tells how much time goes by.
func stopwatch() func() time.Duration {
	begun := time.Now()
	return func() time.Duration { return time.Since(begun) }
}
