package notice_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lendcli/lend/gateway/client/broker/notice"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Each change is noticed once, also one that came between two looks, and a wait that is
// over without one says so.
func TestBoard(t *testing.T) {
	t.Parallel()
	var b notice.Board
	require.Equal(t, uint64(1), b.Wait(t.Context(), 0), "who has seen nothing does not wait")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Equal(t, uint64(1), b.Wait(ctx, 1))
	b.Changed()
	require.Equal(t, uint64(2), b.Wait(t.Context(), 1))

	ctx, cancel = context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			for seen := uint64(2); seen < 102; {
				now := b.Wait(ctx, seen)
				if now == seen {
					t.Error("it waits for ever")
					return
				}
				seen = now
			}
		})
	}
	for range 100 {
		b.Changed()
	}
	all.Wait()
}
