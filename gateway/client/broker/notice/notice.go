package notice

import (
	"context"
	"sync"
)

// Board counts changes. It is safe for concurrent use; its zero value counts 1, so that
// who has seen nothing, 0, waits for nothing.
type Board struct {
	mu    sync.Mutex
	count uint64        // of changes
	next  chan struct{} // closed by the next one; nil if nobody waits
}

// Changed notes a change and wakes all who wait.
func (b *Board) Changed() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.count++
	if b.next != nil {
		close(b.next)
		b.next = nil
	}
}

// Wait waits until the count is another than seen, or ctx is done, and returns it.
func (b *Board) Wait(ctx context.Context, seen uint64) uint64 {
	for {
		b.mu.Lock()
		now := b.count + 1
		if b.next == nil {
			b.next = make(chan struct{})
		}
		next := b.next
		b.mu.Unlock()
		if now != seen {
			return now
		}
		select {
		case <-next:
		case <-ctx.Done():
			return now
		}
	}
}
