package checkup

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRunKeepsTheOrderAndCounts(t *testing.T) {
	t.Parallel()
	second := make(chan struct{})
	r := Run(t.Context(), time.Minute, []Check{
		{Name: "first", Run: func(context.Context) []Row {
			<-second // they run side by side
			return []Row{{Status: Pass}, {Name: "own", Subject: "s", Status: Warn}}
		}},
		One("second", func(context.Context) Row { close(second); return Row{Status: Skip, Detail: "why"} }),
		One("third", func(context.Context) Row { return Row{Status: Fail} }),
	})
	require.Equal(t, []Row{
		{Name: "first", Status: Pass},
		{Name: "own", Subject: "s", Status: Warn},
		{Name: "second", Status: Skip, Detail: "why"},
		{Name: "third", Status: Fail},
	}, r.Rows)
	require.Equal(t, []int{1, 1, 1, 1}, []int{r.Passed, r.Warned, r.Failed, r.Skipped})
	require.False(t, r.OK)
}

func TestRunMakesAFailureOfWhatIsUnknown(t *testing.T) {
	t.Parallel()
	r := Run(t.Context(), time.Minute, []Check{
		{Name: "nil"},
		{Name: "empty", Run: func(context.Context) []Row { return nil }},
		One("status", func(context.Context) Row { return Row{Status: "good"} }),
	})
	require.Len(t, r.Rows, 3)
	for _, row := range r.Rows {
		require.Equal(t, Fail, row.Status, row.Name)
	}
	require.Equal(t, 3, r.Failed)
	require.False(t, r.OK)
	empty := Run(t.Context(), time.Minute, nil)
	require.True(t, empty.OK)
	require.NotNil(t, empty.Rows, "an empty list in JSON")
}

// TestRunIsBounded: one check hangs for good, one heeds its context; the others are
// shown all the same.
func TestRunIsBounded(t *testing.T) {
	t.Parallel()
	forever := make(chan struct{})
	t.Cleanup(func() { close(forever) })
	r := Run(t.Context(), 50*time.Millisecond, []Check{
		One("hangs", func(context.Context) Row { <-forever; return Row{Status: Pass} }),
		One("hangs-too", func(context.Context) Row { <-forever; return Row{Status: Pass} }),
		One("heeds", func(ctx context.Context) Row { <-ctx.Done(); return Row{Status: Skip, Detail: "no time"} }),
		One("quick", func(context.Context) Row { return Row{Status: Pass} }),
	})
	require.Equal(t, []Status{Fail, Fail, Skip, Pass}, []Status{r.Rows[0].Status, r.Rows[1].Status, r.Rows[2].Status, r.Rows[3].Status})
	require.Contains(t, r.Rows[0].Detail, "no answer within 50ms")
	require.Equal(t, "hangs", r.Rows[0].Name)
}
