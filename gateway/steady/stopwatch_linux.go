package steady

import (
	"time"

	"golang.org/x/sys/unix"
)

// Stopwatch tells how much time goes by, suspended or not.
func Stopwatch() func() time.Duration {
	return func() time.Duration {
		var t unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
			return 0 // the wall clock alone, then
		}
		return time.Duration(t.Nano())
	}
}
