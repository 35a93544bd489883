//go:build linux

package crash

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/gateway/client"
)

// overEach runs a test over each transport, one after the other.
func overEach(t *testing.T, f func(t *testing.T, transport string)) {
	t.Helper()
	for _, transport := range []string{"tcp", "quic"} {
		t.Run(transport, func(t *testing.T) { f(t, transport) })
	}
}

// each runs n jobs, as many at once as are wanted.
func each(n, atOnce int, job func(i int)) {
	jobs := make(chan int)
	var all sync.WaitGroup
	for range min(n, atOnce) {
		all.Go(func() {
			for i := range jobs {
				job(i)
			}
		})
	}
	for i := range n {
		jobs <- i
	}
	close(jobs)
	all.Wait()
}

func (w *world) descriptors() int {
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", w.gateway.pid()))
	require.NoError(w.t, err)
	return len(entries)
}

// dump ends the gateway with the stacks of its goroutines, and counts them.
func (w *world) dump() int {
	require.NoError(w.t, w.gateway.cmd.Process.Signal(syscall.SIGQUIT))
	<-w.gateway.ended
	return len(regexp.MustCompile(`(?m)^goroutine \d+ `).FindAll(w.gateway.log.Bytes(), -1))
}

func (w *world) zombies() (n int) {
	all := w.processes()
	for _, p := range all {
		if p.state == 'Z' && below(all, p, w.gateway.pid()) {
			n++
		}
	}
	return n
}

// exact runs operations with random statuses: each caller gets its own.
func (w *world) exact(r *rand.Rand, c *client.Client, name string, n, atOnce, ms int) {
	w.t.Helper()
	statuses := make([]int, n)
	for i := range statuses {
		statuses[i] = r.IntN(256)
	}
	each(n, atOnce, func(i int) {
		id := fmt.Sprintf("%s-%012d", name, i)
		cmd := c.Command(w.t.Context(), "fx", "once", id, strconv.Itoa(statuses[i]), strconv.Itoa(ms))
		cmd.OperationID = id
		out, err := cmd.Output()
		if got := client.ExitStatus(err); got != statuses[i] || string(out) != id+"\n" {
			w.t.Errorf("%s: status %d, want %d; output %q; %v", id, got, statuses[i], out, err)
		}
	})
}

// idle waits until the gateway has nothing more to do.
func (w *world) idle() {
	w.t.Helper()
	require.True(w.t, until(20*time.Second, func() bool { return w.running() == 0 && w.zombies() == 0 }), "%d run, %d are zombies", w.running(), w.zombies())
}

// Thousands of short runs, then hundreds at the same moment: every status is right,
// and afterwards the gateway is as it was.
func TestManyRuns(t *testing.T) { overEach(t, manyRuns) }

func manyRuns(t *testing.T, transport string) { //nolint:thelper // the test itself
	w, r := newWorld(t, transport), plan(t)
	many, together := pick(300, 2000), pick(60, 500)
	warm := func() {
		c := w.client()
		w.exact(r, c, "warm"+strconv.Itoa(w.gateway.pid()), 32, 16, 20)
		require.NoError(t, c.Close())
		w.idle()
	}
	warm()
	goroutines := w.dump() // of a gateway that has done little
	w.serve()
	warm()
	settled := func(n int) func() bool { return func() bool { return w.descriptors() <= n } }
	descriptors := w.descriptors()
	c := w.client(func(c *client.Config) { c.Wait = time.Minute })
	began := time.Now()
	w.exact(r, c, "short", many, 16, 0)
	short := time.Since(began)
	began = time.Now()
	w.exact(r, c, "together", together, together, 300)
	t.Logf("%d runs in %v; %d at once in %v", many, short, together, time.Since(began))
	require.NoError(t, c.Close())
	w.idle()
	require.True(t, until(20*time.Second, settled(descriptors+8)), "%d descriptors, %d before", w.descriptors(), descriptors)
	after := w.descriptors()
	busy := w.dump()
	t.Logf("descriptors %d, then %d; goroutines %d, then %d", descriptors, after, goroutines, busy)
	require.LessOrEqual(t, busy, goroutines+20)
	for id, n := range w.starts() {
		require.Equal(t, 1, n, id)
	}
	w.serve()
}

// A cancel in the first milliseconds: nothing ran, or it is gone.
func TestEarlyCancels(t *testing.T) { overEach(t, earlyCancels) }

func earlyCancels(t *testing.T, transport string) { //nolint:thelper // the test itself
	w, r := newWorld(t, transport), plan(t)
	n := pick(200, 5000)
	after := make([]time.Duration, n)
	for i := range after {
		after[i] = time.Duration(r.IntN(5001)) * time.Microsecond
	}
	c := w.client()
	w.exact(r, c, "warm", 8, 4, 0)
	var mu sync.Mutex
	told := map[int]int{}
	ran := map[string]bool{}
	each(n, 8, func(i int) {
		id := fmt.Sprintf("early-%012d", i)
		ctx, cancel := context.WithCancel(t.Context())
		defer time.AfterFunc(after[i], cancel).Stop()
		defer cancel()
		cmd := c.Command(ctx, "fx", "once", id, "0", "600000")
		cmd.OperationID = id
		var out bytes.Buffer
		cmd.Stdout = &out
		err := cmd.Run()
		mu.Lock()
		defer mu.Unlock()
		told[client.ExitStatus(err)]++
		ran[id] = out.Len() > 0
		if err == nil {
			t.Errorf("%s: it cannot have succeeded", id)
		}
	})
	w.idle() // it would run for 10 minutes
	t.Logf("exit statuses and how often: %v", told)
	for status := range told {
		require.Contains(t, []int{130, 255}, status, "cancelled by the caller, or never answered")
	}
	starts := w.starts()
	for id, output := range ran {
		require.LessOrEqual(t, starts[id], 1, id)
		require.False(t, output && starts[id] == 0, id)
	}
}

// Fifty callers that ask for the same at the same moment get one process.
func TestIdenticalStarts(t *testing.T) { overEach(t, identicalStarts) }

func identicalStarts(t *testing.T, transport string) { //nolint:thelper // the test itself
	w := newWorld(t, transport)
	const id, callers = "identical-000000000001", 50
	var all sync.WaitGroup
	var mu sync.Mutex
	told, takenOver := map[int]int{}, 0
	together := make(chan struct{})
	c := w.client()
	for range callers {
		all.Go(func() {
			<-together
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			cmd := c.Command(ctx, "fx", "once", id, "7", "300")
			cmd.OperationID = id
			out, err := cmd.Output()
			status := client.ExitStatus(err)
			mu.Lock()
			defer mu.Unlock()
			told[status]++
			if status == 7 && string(out) != id+"\n" {
				t.Errorf("an end without all of its output: %q", out)
			}
			if end := cmd.Exit(); end == nil || end.Status != 7 {
				t.Errorf("a caller that does not know the end: %+v, %v", end, err)
			}
			if status == 255 && errors.Is(err, client.ErrTakenOver) {
				takenOver++
			}
		})
	}
	close(together)
	all.Wait()
	t.Logf("exit statuses and how often: %v; %d know that another caller has taken it over", told, takenOver)
	require.Equal(t, 1, w.starts()[id])
	require.Positive(t, told[7], "who holds the operation at its end gets it")
	for status := range told {
		require.Contains(t, []int{7, 255}, status, "its end, or that another took it over")
	}
}
