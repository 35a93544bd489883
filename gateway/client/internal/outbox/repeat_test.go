package outbox

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Each call says when the next one is, and no goroutine waits for it.
func TestRepeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before, began := runtime.NumGoroutine(), time.Now()
		var at []time.Duration
		stop := repeat(3*time.Second, func() time.Duration {
			at = append(at, time.Since(began))
			return time.Duration(len(at)) * time.Second
		})
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.Equal(t, before, runtime.NumGoroutine())
		stop()
		stop() // twice
		time.Sleep(time.Hour)
		require.Equal(t, []time.Duration{3 * time.Second, 4 * time.Second, 6 * time.Second, 9 * time.Second}, at)
	})
}

func TestRepeatUntilThereIsNoNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		stop := repeat(time.Second, func() time.Duration {
			n++
			return time.Second * time.Duration(2-n)
		})
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, 2, n)
		stop()
	})
}

// stop waits for a call that runs, and no other follows.
func TestStopWaitsForACallThatRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		goOn, n := make(chan struct{}), 0
		stop := repeat(time.Second, func() time.Duration {
			n++
			<-goOn
			return 1
		})
		time.Sleep(time.Second)
		synctest.Wait()
		stopped := false
		var all sync.WaitGroup
		all.Go(func() {
			stop()
			stopped = true
		})
		time.Sleep(time.Hour)
		require.False(t, stopped)
		close(goOn)
		all.Wait()
		time.Sleep(time.Hour)
		require.Equal(t, 1, n)
	})
}

// A call whose time came while another had the turn finds that all is over, and stop waits
// for its goroutine too.
func TestStopWaitsForACallThatComesTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &repetition{turn: make(chan struct{}, 1), ended: make(chan struct{}), f: func() time.Duration {
			t.Error("it was stopped")
			return 0
		}}
		r.turn <- struct{}{}
		r.timer = time.AfterFunc(time.Second, r.call)
		var all sync.WaitGroup
		all.Go(func() {
			r.stop()
			select {
			case <-r.ended:
			default:
				t.Error("there is a goroutine yet")
			}
		})
		synctest.Wait()
		time.Sleep(time.Hour) // it waits behind stop
		<-r.turn
		all.Wait()
	})
}

// At whatever moment stop comes, nothing runs after it.
func TestNothingRunsAfterStop(t *testing.T) {
	for i := range 2000 {
		var over atomic.Bool
		var late atomic.Int32
		d := time.Duration(i%50) * time.Microsecond
		stop := repeat(d, func() time.Duration {
			if over.Load() {
				late.Add(1)
			}
			runtime.Gosched()
			if over.Load() {
				late.Add(1)
			}
			return time.Microsecond
		})
		for began := time.Now(); time.Since(began) < d; {
			runtime.Gosched()
		}
		stop()
		over.Store(true)
		if i%100 == 0 {
			time.Sleep(time.Millisecond)
		}
		require.Zero(t, late.Load())
	}
}
