package localhost

import (
	"context"
	"sync"

	"github.com/lendcli/lend/protocol/name"
	"golang.org/x/sync/semaphore"
)

// maxLanes is how many Connectors are reconciled at the same moment.
const maxLanes = 8

// lanes lets the changes of one Connector happen one after another, while other
// Connectors go on; a change of all waits for the others and keeps them out.
type lanes struct {
	all *semaphore.Weighted // of weight maxLanes

	mu sync.Mutex // guards of
	of map[name.ConnectorKey]*lane
}

// lane is the place of one Connector; it exists while somebody needs it.
type lane struct {
	turn  *semaphore.Weighted // of weight 1
	users int                 // guarded by lanes.mu
}

func newLanes() *lanes {
	return &lanes{all: semaphore.NewWeighted(maxLanes), of: make(map[name.ConnectorKey]*lane)}
}

// enter waits for the lane of key; the caller must call leave.
func (l *lanes) enter(ctx context.Context, key name.ConnectorKey) (leave func(), err error) {
	own := l.join(key)
	if err := own.turn.Acquire(ctx, 1); err != nil {
		l.quit(key, own)
		return nil, err
	}
	if err := l.all.Acquire(ctx, 1); err != nil {
		own.turn.Release(1)
		l.quit(key, own)
		return nil, err
	}
	return func() {
		l.all.Release(1)
		own.turn.Release(1)
		l.quit(key, own)
	}, nil
}

// enterAll waits until no lane is in use; the caller must call leave.
func (l *lanes) enterAll(ctx context.Context) (leave func(), err error) {
	if err := l.all.Acquire(ctx, maxLanes); err != nil {
		return nil, err
	}
	return func() { l.all.Release(maxLanes) }, nil
}

func (l *lanes) join(key name.ConnectorKey) *lane {
	l.mu.Lock()
	defer l.mu.Unlock()
	own := l.of[key]
	if own == nil {
		own = &lane{turn: semaphore.NewWeighted(1)}
		l.of[key] = own
	}
	own.users++
	return own
}

func (l *lanes) quit(key name.ConnectorKey, own *lane) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if own.users--; own.users == 0 {
		delete(l.of, key)
	}
}
