package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/lendcli/lend/gateway/client"
	"github.com/lendcli/lend/protocol"
)

const (
	// settleTime is how long the third signal waits for a run that ends by itself: one
	// of which nothing was sent does at once.
	settleTime = 300 * time.Millisecond
	// enough signals end the program even if nobody takes what it has to tell.
	enough = 6
)

// interrupts are ^C, TERM and HUP while a run lasts, from before anything is sent until
// its end is told: the first cancels, the second shortens the grace, the third leaves.
// They are never waited for: whatever a signal starts is somebody else's to do.
type interrupts struct {
	in             chan os.Signal
	done, finished chan struct{}
	settled        chan struct{} // closed when tell is known

	mu      sync.Mutex // guards what follows
	n       int        // how many came
	act     func(n int)
	tell    func() int // tells how the run ended and returns the exit status
	telling bool       // somebody does
}

// catchInterrupts takes the signals over. Left tells of a run that is left before it has
// ended, and returns the exit status.
func (a *app) catchInterrupts(ctx context.Context, left func() int) *interrupts {
	s := &interrupts{in: make(chan os.Signal, enough), done: make(chan struct{}), finished: make(chan struct{}), settled: make(chan struct{}), tell: left}
	signal.Notify(s.in, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	if ctx.Err() != nil { // ^C came before that
		s.n = 1
	}
	a.stopSignals()
	go s.watch()
	return s
}

// do says what the first two signals do from now on, and does it for those that came
// already; nil: nothing. What they do must not wait. After do, nothing is done as before.
func (s *interrupts) do(act func(n int)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.act = act
	for n := 1; act != nil && n <= min(s.n, 2); n++ {
		act(n)
	}
}

// came tells whether there was a signal.
func (s *interrupts) came() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.n > 0
}

// settle says how to tell of the end, once it is known. It is called once.
func (s *interrupts) settle(tell func() int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tell = tell
	close(s.settled)
}

// finish tells of the end and returns the exit status. If the run is being left, it does
// not return: the program ends.
func (s *interrupts) finish() int {
	tell, ok := s.claim()
	if !ok {
		select {}
	}
	status := tell()
	s.mu.Lock()
	interrupted := s.n > 0
	s.mu.Unlock()
	if interrupted { // what else comes until the exit must not kill what has ended
		signal.Notify(make(chan os.Signal, 1), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	}
	signal.Stop(s.in)
	close(s.done)
	<-s.finished
	return status
}

// claim returns how to tell of the end to one alone.
func (s *interrupts) claim() (tell func() int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ok, s.telling = !s.telling, true
	return s.tell, ok
}

func (s *interrupts) watch() {
	defer close(s.finished)
	var leaving sync.Once
	for {
		select {
		case <-s.done:
			return
		case <-s.in:
		}
		s.mu.Lock()
		s.n++
		n, telling := s.n, s.telling
		if s.act != nil && n <= 2 {
			s.act(n)
		}
		s.mu.Unlock()
		switch {
		case n >= enough:
			os.Exit(protocol.CodeOutcomeUnknown.EndStatus())
		case n >= 3 && !telling:
			leaving.Do(func() { go s.leave() }) // it ends with the program
		}
	}
}

// leave ends the program, unless the end is being told.
func (s *interrupts) leave() {
	select {
	case <-s.settled:
	case <-time.After(settleTime):
	}
	if tell, ok := s.claim(); ok {
		os.Exit(tell())
	}
}

// leftError is what a run says that was left before its end.
type leftError struct{ *client.EndedError }

func (e *leftError) Error() string { return "left before the end; the outcome is unknown" }

// Unwrap returns the end as programs are told of it.
func (e *leftError) Unwrap() error { return e.EndedError }

func leftBehind() error {
	return &leftError{&client.EndedError{Code: protocol.CodeOutcomeUnknown, Cause: fmt.Errorf("%w: left before the end", client.ErrOutcomeUnknown)}}
}

// leftEarly is the error of a run of which nothing was sent when it was cancelled.
func leftEarly() error { return fmt.Errorf("start: %w", context.Canceled) }
