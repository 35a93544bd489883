package outbox

import "time"

// repeat calls f after the time d, and again whenever the time that f returned is over,
// until stop is called or f returns 0. There is a goroutine only while f runs. When stop
// returns, f does not run and will not any more; f must not call it.
func repeat(d time.Duration, f func() time.Duration) (stop func()) {
	r := &repetition{f: f, turn: make(chan struct{}, 1), ended: make(chan struct{})}
	r.turn <- struct{}{}
	defer func() { <-r.turn }()
	r.timer = time.AfterFunc(d, r.call)
	return r.stop
}

type repetition struct {
	f     func() time.Duration
	ended chan struct{} // closed when nothing will run
	// turn is held by who uses what follows: a lock that a test's clock does not wait for.
	turn  chan struct{}
	timer *time.Timer
	over  bool // f must not be called
}

func (r *repetition) call() {
	r.turn <- struct{}{}
	defer func() { <-r.turn }()
	if !r.over {
		if next := r.f(); next > 0 {
			r.timer.Reset(next)
			return
		}
	}
	r.over = true
	close(r.ended)
}

func (r *repetition) stop() {
	r.turn <- struct{}{}
	r.over = true
	if r.timer.Stop() {
		close(r.ended) // else a call that waits for its turn does, or the last one did
	}
	<-r.turn
	<-r.ended
}
