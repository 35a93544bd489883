package door

import (
	"context"
	"slices"
	"sync"

	"github.com/libp2p/go-libp2p/core/peer"
)

// Permits let a number of starts happen at the same moment. Whoever waits gets a
// turn peer by peer, and each peer's in the order in which they came: many starts
// of one peer hold up no other's. Methods are safe for concurrent use.
type Permits struct {
	mu      sync.Mutex // guards what follows
	free    int
	waiting map[peer.ID][]chan struct{}
	turns   []peer.ID // those that wait, the next one first
}

// NewPermits returns n permits, at least one.
func NewPermits(n int) *Permits {
	return &Permits{free: max(1, n), waiting: map[peer.ID][]chan struct{}{}}
}

// Acquire waits for a permit of p. The error is the cause of ctx, and there is no
// permit then.
func (q *Permits) Acquire(ctx context.Context, p peer.ID) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	q.mu.Lock()
	if q.free > 0 {
		q.free--
		q.mu.Unlock()
		return nil
	}
	mine := make(chan struct{})
	if len(q.waiting[p]) == 0 {
		q.turns = append(q.turns, p)
	}
	q.waiting[p] = append(q.waiting[p], mine)
	q.mu.Unlock()
	select {
	case <-mine:
		return nil
	case <-ctx.Done():
	}
	if !q.leave(p, mine) {
		q.Release() // it came in between
	}
	return context.Cause(ctx)
}

// leave gives up a place in the queue; false if the permit was given already.
func (q *Permits) leave(p peer.ID, mine chan struct{}) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	at := slices.Index(q.waiting[p], mine)
	if at < 0 {
		return false
	}
	q.waiting[p] = slices.Delete(q.waiting[p], at, at+1)
	if len(q.waiting[p]) == 0 {
		delete(q.waiting, p)
		q.turns = slices.DeleteFunc(q.turns, func(o peer.ID) bool { return o == p })
	}
	return true
}

// Release gives one permit back, to the next in turn.
func (q *Permits) Release() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.turns) == 0 {
		q.free++
		return
	}
	p := q.turns[0]
	q.turns = q.turns[1:]
	next := q.waiting[p][0]
	if q.waiting[p] = q.waiting[p][1:]; len(q.waiting[p]) > 0 {
		q.turns = append(q.turns, p)
	} else {
		delete(q.waiting, p)
	}
	close(next)
}
