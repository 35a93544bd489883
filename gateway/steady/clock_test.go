package steady

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestClock(t *testing.T) {
	t.Parallel()
	base := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	wall, machine := base, time.Duration(0)
	c := Over(func() time.Time { return wall }, func() time.Duration { return machine }, base.Add(time.Minute))
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
	s := Stopwatch()
	begun := s()
	require.Eventually(t, func() bool { return s() > begun }, 10*time.Second, time.Millisecond)
	require.WithinDuration(t, time.Now(), New(time.Now, time.Time{}).Now(), time.Second)
}

// What may happen to the two clocks of a machine, and what is said then.
func TestWhatHappensToClocks(t *testing.T) {
	t.Parallel()
	type step struct {
		wall, machine time.Duration // how far each goes on
		want          time.Duration // in all
	}
	for label, steps := range map[string][]step{
		"both-go-on":                {{time.Second, time.Second, time.Second}, {time.Second, time.Second, 2 * time.Second}},
		"suspend":                   {{time.Hour, time.Hour, time.Hour}},
		"suspend-wall-stands-still": {{0, time.Hour, time.Hour}, {time.Second, time.Second, time.Hour + time.Second}},
		"suspend-wall-comes-late":   {{0, time.Hour, time.Hour}, {time.Hour, time.Second, time.Hour + time.Second}},
		"wall-back":                 {{-time.Hour, time.Second, time.Second}, {time.Second, time.Second, 2 * time.Second}},
		"wall-forward":              {{time.Hour, time.Second, time.Hour}, {time.Second, time.Second, time.Hour + time.Second}},
		"wall-forward-and-back":     {{time.Hour, 0, time.Hour}, {-time.Hour, time.Second, time.Hour + time.Second}},
		"wall-slow":                 {{time.Second, time.Minute, time.Minute}, {time.Second, time.Minute, 2 * time.Minute}},
		"wall-fast":                 {{time.Minute, time.Second, time.Minute}},
		"machine-begins-anew":       {{time.Second, time.Second, time.Second}, {time.Second, -time.Hour, 2 * time.Second}, {0, time.Second, 3 * time.Second}},
		"machine-has-no-time":       {{time.Second, 0, time.Second}, {-time.Hour, 0, time.Second}, {2 * time.Hour, 0, time.Hour + time.Second}},
	} {
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			base := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			wall, machine := base, 100*time.Hour
			c := Over(func() time.Time { return wall }, func() time.Duration { return machine }, time.Time{})
			require.Equal(t, base, c.Now())
			for i, s := range steps {
				wall, machine = wall.Add(s.wall), machine+s.machine
				require.Equal(t, base.Add(s.want), c.Now(), "step %d", i)
			}
		})
	}
}

// Whatever both clocks do: never back, never before either of them.
func TestNeverBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		base := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		wall, machine := base, time.Duration(0)
		step := rapid.Int64Range(-int64(time.Hour), int64(time.Hour))
		c := Over(func() time.Time { return wall }, func() time.Duration { return machine }, base)
		last := c.Now()
		for range rapid.IntRange(1, 20).Draw(rt, "steps") {
			wall = wall.Add(time.Duration(step.Draw(rt, "wall")))
			on := time.Duration(step.Draw(rt, "machine"))
			machine += on
			now := c.Now()
			require.False(rt, now.Before(wall))
			require.False(rt, now.Before(last.Add(max(0, on))))
			last = now
		}
	})
}
