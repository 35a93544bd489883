package socket

import (
	"context"
	"errors"
	"time"
)

const (
	// maxWatchers is how many of the callers may wait for a change.
	maxWatchers = maxConnections / 4
	// watchTime is how long one waits before it asks again.
	watchTime = 5 * time.Second
)

var errWatchers = errors.New("too many wait for a change")

// watch answers when something has changed in a session, or after a while.
func (s *Server) watch(q Question) (uint64, error) {
	select {
	case s.watchers <- struct{}{}:
		defer func() { <-s.watchers }()
	default:
		return 0, errWatchers
	}
	ctx, cancel := context.WithTimeout(s.ctx, watchTime)
	defer cancel()
	return s.broker.Watch(ctx, q.Session, q.Seen)
}

// Watch waits, for a few seconds at most, until something has changed of what a session may
// run since it was at seen, and returns what it is at now: 0 is before everything. The
// error is broker.ErrNoSession, at once when the session ends, or those of Ask.
func Watch(ctx context.Context, socket, session string, seen uint64) (uint64, error) {
	a, err := Ask(ctx, socket, Question{Do: DoWatch, Session: session, Seen: seen})
	return a.Seen, err
}
