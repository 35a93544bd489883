package localhost

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/localhost/route"
)

// BenchmarkStartUnchanged compares the start of an unchanged native Connector (40 MiB
// of it) with a bare fork and exec of the same file: until the program is executed,
// and until it is reaped, its outputs read to their ends and all of it dropped. The
// ways take turns, so that a busy machine is busy for all of them; the figures that
// count are the ratios, of the medians, and of what nine of ten rounds exceed, which
// is what a machine that is busy with other things tells best.
func BenchmarkStartUnchanged(b *testing.B) {
	c := newStartContest(b)
	for b.Loop() {
		c.round(b)
	}
	for _, w := range c.ways {
		for _, m := range []struct {
			name       string
			mine, bare []time.Duration
		}{
			{"start", w.started, c.ways[0].started},
			{"run", w.ended, c.ways[0].ended},
		} {
			b.ReportMetric(float64(quantile(m.mine, 50))/1e3, w.name+"-"+m.name+"-µs")
			b.ReportMetric(float64(quantile(m.mine, 50))/float64(quantile(m.bare, 50)), w.name+"-"+m.name+"/bare")
			b.ReportMetric(float64(quantile(m.mine, 10))/float64(quantile(m.bare, 10)), w.name+"-"+m.name+"/bare-p10")
		}
	}
}

// contest are several ways to start one program.
type contest struct {
	ways []*way
	n    int
}

type way struct {
	name           string
	run            func(ctx context.Context) (started time.Time, err error)
	started, ended []time.Duration
}

func (c *contest) round(tb testing.TB) {
	tb.Helper()
	for k := range c.ways {
		w := c.ways[(c.n+k)%len(c.ways)]
		began := time.Now()
		started, err := w.run(tb.Context())
		if err != nil {
			tb.Fatal(w.name, err)
		}
		w.ended = append(w.ended, time.Since(began))
		w.started = append(w.started, started.Sub(began))
	}
	c.n++
}

func quantile(d []time.Duration, percent int) time.Duration {
	d = slices.Sorted(slices.Values(d))
	return d[len(d)*percent/100]
}

func newStartContest(tb testing.TB) *contest {
	tb.Helper()
	program, _ := trueAndFalse(tb)
	h := newNativeHost(tb, program, 40<<20)
	c := &contest{ways: []*way{{name: "bare", run: func(context.Context) (time.Time, error) { return bare(h.path) }}}}
	add := func(name string, shared bool, files int) {
		h := newNativeHost(tb, program, 40<<20)
		require.NoError(tb, h.account.SetSharedHome(shared))
		for i := range files {
			require.NoError(tb, os.WriteFile(filepath.Join(h.account.Home(), fmt.Sprintf("config-%d", i)), make([]byte, 1000), 0o600))
		}
		c.ways = append(c.ways, &way{name: name, run: func(ctx context.Context) (time.Time, error) { return h.startAndDrain(ctx) }})
	}
	add("shared", true, 4)
	add("copied", false, 4)
	add("empty", false, 0)
	return c
}

// bare forks, executes and waits, as little as a caller of a CLI can do.
func bare(path string) (started time.Time, err error) {
	var ours, theirs [3]*os.File
	for i := range ours {
		r, w, err := os.Pipe()
		if err != nil {
			return started, err
		}
		ours[i], theirs[i] = r, w
	}
	ours[0], theirs[0] = theirs[0], ours[0]
	p, err := os.StartProcess(path, []string{"native"}, &os.ProcAttr{Dir: "/", Env: []string{}, Files: theirs[:]})
	started = time.Now()
	for _, f := range theirs {
		_ = f.Close()
	}
	if err != nil {
		return started, err
	}
	_ = ours[0].Close()
	drainBoth(ours[1], ours[2])
	_, err = p.Wait()
	return started, errors.Join(err, ours[1].Close(), ours[2].Close())
}

func (h *nativeHost) startAndDrain(ctx context.Context) (started time.Time, err error) {
	p, err := h.Start(ctx, route.StartRequest{Identity: h.id, Stdin: true})
	started = time.Now()
	if err != nil {
		return started, err
	}
	_ = p.Stdin().Close()
	drainBoth(p.Stdout(), p.Stderr())
	_, err = p.Wait(ctx)
	return started, errors.Join(err, p.Close())
}

func drainBoth(a, b io.Reader) {
	var w sync.WaitGroup
	for _, r := range []io.Reader{a, b} {
		w.Go(func() { _, _ = io.Copy(io.Discard, r) })
	}
	w.Wait()
}
