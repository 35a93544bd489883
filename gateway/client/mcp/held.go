package mcp

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/lendcli/lend/protocol/name"
)

// Watcher is a Lender that notices by itself when it lends something else.
type Watcher interface {
	// Watch calls changed, from one goroutine, whenever Lent may have something else to
	// say, until ctx is done. The error says why nothing is noticed; the Lender is asked
	// now and then all the same.
	Watch(ctx context.Context, changed func()) error
}

// Watched makes a Watcher of a lender and of what notices for it. Its Close is the
// lender's.
func Watched(l Lender, watch func(ctx context.Context, changed func()) error) Lender {
	return &watched{l, watch}
}

type watched struct {
	Lender
	watch func(context.Context, func()) error
}

// Watch implements Watcher.
func (w *watched) Watch(ctx context.Context, changed func()) error { return w.watch(ctx, changed) }

// held is a lender with what it lends.
type held struct {
	lender Lender
	kick   chan struct{} // ask it now
	lent   []Lent        // guarded by Server.offers
	over   bool          // likewise
}

// askSoon has the lender asked now.
func (h *held) askSoon() {
	select {
	case h.kick <- struct{}{}:
	default: // it is on its way
	}
}

// ended tells whether something that it lends has ended by its time.
func (h *held) ended(now time.Time) bool {
	return slices.ContainsFunc(h.lent, func(l Lent) bool { return !l.lasts(now) })
}

func (l *Lent) lasts(now time.Time) bool { return l.Until.IsZero() || now.Before(l.Until) }

// follow asks a lender now and then, and when it has noticed something, until it is over.
// The end of the last one ends the scope.
func (s *Server) follow(h *held) {
	if h.over {
		return
	}
	ctx, cancel := context.WithCancel(s.ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	if w, ok := h.lender.(Watcher); ok {
		watching.Go(func() {
			if err := w.Watch(ctx, h.askSoon); err != nil && ctx.Err() == nil {
				s.log.Warn().Str("problem", name.Show(err.Error())).Msg("lender not watched, only asked now and then")
			}
		})
	}
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	next := time.Now().Add(s.config.Every)
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-h.kick:
		case now := <-look.C:
			if now.Before(next) && !h.ended(now) {
				continue
			}
		}
		s.ask(s.ctx, h)
		if !s.publish(s.ctx) {
			s.log.Debug().Msg("nothing is lent any more")
			s.end(ErrOver)
			s.hangUp()
			return
		}
		if h.over {
			return
		}
		next = time.Now().Add(s.config.Every)
	}
}

// askAll asks all lenders once, and offers what they lend: false if all are over.
func (s *Server) askAll(ctx context.Context) bool {
	var wg sync.WaitGroup
	for _, h := range s.held {
		wg.Go(func() { s.ask(ctx, h) })
	}
	wg.Wait()
	return s.publish(ctx)
}

// ask asks a lender what it lends. After an error what it said before is believed, as
// long as it lasts.
func (s *Server) ask(ctx context.Context, h *held) {
	lent, err := h.lender.Lent(ctx)
	s.offers.Lock()
	defer s.offers.Unlock()
	switch {
	case err == nil:
		h.lent = lent
	case errors.Is(err, ErrOver):
		h.lent, h.over = nil, true
	case s.ctx.Err() != nil: // it is closed, and the lender was interrupted
	default:
		now := time.Now()
		h.lent = slices.DeleteFunc(slices.Clone(h.lent), func(l Lent) bool { return !l.lasts(now) })
		s.log.Warn().Str("problem", name.Show(err.Error())).Msg("catalogue not read")
	}
}

// publish offers what the lenders lend: false if all are over.
func (s *Server) publish(ctx context.Context) bool {
	s.offers.Lock()
	defer s.offers.Unlock()
	if s.ctx.Err() != nil {
		return true // it is closed: nobody is told of anything
	}
	s.offer(s.toolsOf(ctx, s.held))
	return slices.ContainsFunc(s.held, func(h *held) bool { return !h.over })
}
