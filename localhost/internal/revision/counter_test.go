package revision

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(c <-chan struct{}) bool {
	select {
	case <-c:
		return false
	default:
		return true
	}
}

func TestCounter(t *testing.T) {
	t.Parallel()
	var c Counter
	require.Zero(t, c.Now())
	first, same := c.After(0), c.After(0)
	require.True(t, open(first))
	require.Equal(t, first, same, "those who wait share one channel")
	require.EqualValues(t, 1, c.Raise())
	require.False(t, open(first))
	require.False(t, open(c.After(0)), "what has been is not waited for")
	require.True(t, open(c.After(1)))
	require.EqualValues(t, 2, c.Raise())
	require.EqualValues(t, 2, c.Now())
	require.Zero(t, (*Counter)(nil).Raise())
}

// TestNobodyMissesTheLast: each of many who wait ends at the newest revision.
func TestNobodyMissesTheLast(t *testing.T) {
	t.Parallel()
	const last = 10000
	var c Counter
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for seen := uint64(0); seen < last; {
				<-c.After(seen)
				seen = c.Now()
			}
		})
	}
	for range last {
		c.Raise()
	}
	all.Wait()
}
