package steady

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestClock(t *testing.T) {
	t.Parallel()
	base := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	wall, machine := base, time.Duration(0)
	c := newClock(func() time.Time { return wall }, func() time.Duration { return machine }, base.Add(time.Minute))
	require.Equal(t, base.Add(time.Minute), c.Now(), "something is known to be later")
	machine += time.Second
	require.Equal(t, base.Add(61*time.Second), c.Now(), "it goes on with the machine")
	wall = base.Add(time.Hour)
	require.Equal(t, wall, c.Now())
	wall, machine = base, machine+time.Second
	require.Equal(t, base.Add(time.Hour+time.Second), c.Now(), "it was set back")
	machine = 0
	require.Equal(t, base.Add(time.Hour+time.Second), c.Now())
}

func TestStopwatchGoesOn(t *testing.T) {
	t.Parallel()
	s := stopwatch()
	begun := s()
	require.Eventually(t, func() bool { return s() > begun }, 10*time.Second, time.Millisecond)
	require.WithinDuration(t, time.Now(), New(time.Now, time.Time{}).Now(), time.Second)
}
