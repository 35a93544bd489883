//go:build linux

package shaper

import (
	"container/heap"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// Shape is what happens to the packets of one direction.
type Shape struct {
	Delay, Jitter            time.Duration // Jitter is added to the packets that are held back
	Loss, Reorder, Duplicate float64       // shares of the packets
	Rate                     int           // bytes per second; 0: no bound
}

// maxQueued is when a bounded link drops what comes: a quarter of a second of it,
// and no less than this.
const maxQueued = 128 << 10

// Link carries IP packets between two devices. Its methods are safe for concurrent
// use.
type Link struct {
	hole                             atomic.Bool
	carried, lost, held, twice, gone atomic.Int64
	devices                          [2]*os.File
	wg                               sync.WaitGroup
}

// Open makes the device Device in both namespaces, without an address and down, and
// carries packets between them until Close. The seed decides which packets are lost.
func Open(s Shape, seed uint64, namespaces [2]string) (*Link, error) {
	l := &Link{}
	for i, ns := range namespaces {
		d, err := openDevice(ns)
		if err != nil {
			if i > 0 {
				_ = l.devices[0].Close()
			}
			return nil, fmt.Errorf("open a device in %s: %w", ns, err)
		}
		l.devices[i] = d
	}
	for i := range 2 {
		random := rand.New(rand.NewPCG(seed, uint64(i))) //nolint:gosec // the same packets are lost each time
		w := &wire{Link: l, Shape: s, to: l.devices[1-i], wake: make(chan struct{}, 1), random: random}
		done := make(chan struct{})
		l.wg.Go(func() { defer close(done); w.take(l.devices[i]) })
		l.wg.Go(func() { w.give(done) })
	}
	return l, nil
}

// SetHole opens a black hole, which swallows what is on the way too, or closes it.
func (l *Link) SetHole(open bool) { l.hole.Store(open) }

// Close takes the devices away and waits until nothing is carried any more.
func (l *Link) Close() error {
	err := errors.Join(l.devices[0].Close(), l.devices[1].Close())
	l.wg.Wait()
	return err
}

// String says what happened to the packets so far.
func (l *Link) String() string {
	return fmt.Sprintf("%d carried, %d lost, %d held back, %d twice, %d into the hole",
		l.carried.Load(), l.lost.Load(), l.held.Load(), l.twice.Load(), l.gone.Load())
}

// wire is one direction.
type wire struct {
	*Link
	Shape
	to     *os.File
	random *rand.Rand // owned by take
	wake   chan struct{}

	mu     sync.Mutex // guards what follows
	queue  packets
	number int
	free   time.Time // when the last packet has left a bounded link
}

type packet struct {
	at     time.Time
	number int
	bytes  []byte
}

// packets is a heap by time, then by the order in which they came.
type packets []packet

func (p packets) Len() int { return len(p) }
func (p packets) Less(i, j int) bool {
	return p[i].at.Before(p[j].at) || p[i].at.Equal(p[j].at) && p[i].number < p[j].number
}
func (p packets) Swap(i, j int) { p[i], p[j] = p[j], p[i] }
func (p *packets) Push(x any)   { *p = append(*p, x.(packet)) }
func (p *packets) Pop() any {
	last := (*p)[len(*p)-1]
	*p = (*p)[:len(*p)-1]
	return last
}

// take reads packets until the device is closed.
func (w *wire) take(from *os.File) {
	b := make([]byte, 65536)
	for {
		n, err := from.Read(b)
		if err != nil {
			return
		}
		switch {
		case w.hole.Load():
			w.gone.Add(1)
			continue
		case w.random.Float64() < w.Loss:
			w.lost.Add(1)
			continue
		}
		delay := w.Delay
		if w.random.Float64() < w.Reorder {
			w.held.Add(1)
			delay += w.Jitter
		}
		w.add(append([]byte(nil), b[:n]...), delay)
		if w.random.Float64() < w.Duplicate {
			w.twice.Add(1)
			w.add(append([]byte(nil), b[:n]...), delay)
		}
	}
}

func (w *wire) add(b []byte, delay time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := time.Now()
	if w.Rate > 0 {
		if w.free.Before(at) {
			w.free = at
		}
		if ahead := w.free.Sub(at); ahead.Seconds()*float64(w.Rate) > max(maxQueued, float64(w.Rate)/4) {
			w.lost.Add(1)
			return
		}
		w.free = w.free.Add(time.Duration(float64(len(b)) / float64(w.Rate) * float64(time.Second)))
		at = w.free
	}
	w.number++
	heap.Push(&w.queue, packet{at.Add(delay), w.number, b})
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// give writes packets when they are due. What is in flight when the hole opens is
// lost too.
func (w *wire) give(done <-chan struct{}) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		next := time.Hour
		w.mu.Lock()
		for len(w.queue) > 0 && !w.queue[0].at.After(time.Now()) {
			p := heap.Pop(&w.queue).(packet)
			if w.hole.Load() {
				w.gone.Add(1)
				continue
			}
			w.carried.Add(1)
			_, _ = w.to.Write(p.bytes) // a device that is down drops it, as a wire would
		}
		if len(w.queue) > 0 {
			next = time.Until(w.queue[0].at)
		}
		w.mu.Unlock()
		timer.Reset(next)
		select {
		case <-w.wake:
		case <-timer.C:
		case <-done:
			return
		}
	}
}
