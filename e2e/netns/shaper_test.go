//go:build linux

package netns

import (
	"container/heap"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// shape is what happens to packets of one direction.
type shape struct {
	delay, jitter            time.Duration // jitter is added to the packets that are held back
	loss, reorder, duplicate float64       // shares of the packets
	rate                     int           // bytes per second; 0: no bound
}

// maxQueued is when a bounded link drops what comes: a quarter of a second of it,
// and no less than this.
const maxQueued = 128 << 10

// link carries IP packets between two devices.
type link struct {
	hole                             atomic.Bool
	carried, lost, held, twice, gone atomic.Int64
	devices                          [2]*os.File
	wg                               sync.WaitGroup
}

// newLink makes the device lend0 in both namespaces and carries packets between
// them until the end of the test.
func newLink(t *testing.T, s shape, seed uint64, namespaces [2]string) *link {
	t.Helper()
	l := &link{}
	for i, ns := range namespaces {
		l.devices[i] = openDevice(t, ns)
	}
	for i := range 2 {
		w := &wire{link: l, shape: s, to: l.devices[1-i], wake: make(chan struct{}, 1), random: rand.New(rand.NewPCG(seed, uint64(i)))}
		done := make(chan struct{})
		l.wg.Go(func() { defer close(done); w.take(l.devices[i]) })
		l.wg.Go(func() { w.give(done) })
	}
	t.Cleanup(func() {
		for _, d := range l.devices {
			_ = d.Close()
		}
		l.wg.Wait()
		t.Logf("link: %d carried, %d lost, %d held back, %d twice, %d into the hole",
			l.carried.Load(), l.lost.Load(), l.held.Load(), l.twice.Load(), l.gone.Load())
	})
	return l
}

// openDevice makes a TUN device in a namespace; it goes with the file.
func openDevice(t *testing.T, ns string) *os.File {
	t.Helper()
	var fd int
	var err error
	inNamespace(ns, func() {
		if fd, err = unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0); err != nil {
			return
		}
		var request *unix.Ifreq
		if request, err = unix.NewIfreq("lend0"); err == nil {
			request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
			err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
		}
	}, &err)
	require.NoError(t, err)
	return os.NewFile(uintptr(fd), "/dev/net/tun")
}

// wire is one direction.
type wire struct {
	*link
	shape
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
		case w.random.Float64() < w.loss:
			w.lost.Add(1)
			continue
		}
		delay := w.delay
		if w.random.Float64() < w.reorder {
			w.held.Add(1)
			delay += w.jitter
		}
		w.add(append([]byte(nil), b[:n]...), delay)
		if w.random.Float64() < w.duplicate {
			w.twice.Add(1)
			w.add(append([]byte(nil), b[:n]...), delay)
		}
	}
}

func (w *wire) add(b []byte, delay time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := time.Now()
	if w.rate > 0 {
		if w.free.Before(at) {
			w.free = at
		}
		if ahead := w.free.Sub(at); ahead.Seconds()*float64(w.rate) > max(maxQueued, float64(w.rate)/4) {
			w.lost.Add(1)
			return
		}
		w.free = w.free.Add(time.Duration(float64(len(b)) / float64(w.rate) * float64(time.Second)))
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
