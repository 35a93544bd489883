package turn

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOneAtATime(t *testing.T) {
	var turn Turn
	var all sync.WaitGroup
	n := 0
	for range 50 {
		all.Go(func() {
			turn.Lock()
			defer turn.Unlock()
			n++
		})
	}
	all.Wait()
	require.Equal(t, 50, n)
}

func TestTryLock(t *testing.T) {
	var turn Turn
	require.True(t, turn.TryLock())
	require.False(t, turn.TryLock())
	turn.Unlock()
	require.True(t, turn.TryLock())
	turn.Unlock()
}
