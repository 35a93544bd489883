package ledger

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/protocol/name"
)

// many runs operations from several goroutines, each invocation with ten of them,
// and returns how long each start took.
func many(tb testing.TB, l *Ledger, from, n, workers int) []time.Duration {
	tb.Helper()
	var next atomic.Int64
	var wg sync.WaitGroup
	took := make([][]time.Duration, workers)
	errs := make([]error, workers)
	base := testKey(tb, 0)
	for w := range workers {
		wg.Go(func() {
			for errs[w] == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				i += from
				c := Claim{Key: base, Digest: [32]byte{1}, Lease: [16]byte{byte(i / 10), byte(i / 2560), byte(i / 655360)}, MaxOperations: 100, Frozen: []byte(`{"grant":1}`)}
				c.Invocation = must(name.ParseInvocationID(fmt.Sprintf("run-%07d", i/10)))
				c.Operation = must(name.ParseOperationID(fmt.Sprintf("operation-%08d", i)))
				out, err := l.Reserve(c)
				if err != nil || out.State != StateNone {
					errs[w] = fmt.Errorf("%v, %w", out.State, err)
					return
				}
				s := testStart()
				s.LeaseNotAfter = l.now().Add(time.Hour)
				began := time.Now()
				err = out.Reservation.Start(context.Background(), s)
				took[w] = append(took[w], time.Since(began))
				if err == nil {
					err = out.Reservation.End(End{State: StateEnded})
				}
				errs[w] = err
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		require.NoError(tb, err)
	}
	return slices.Sorted(slices.Values(slices.Concat(took...)))
}

func heap() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc) / (1 << 20)
}

// A million records: up again in less than two seconds after a kill, the same
// without snapshots but for the time, and pruned to nothing.
//
// spec: LEDGER-30, LEDGER-32
func TestMillion(t *testing.T) {
	if os.Getenv("LEND_TEST_LONG") == "" {
		t.Skip("needs LEND_TEST_LONG=1: writes a million records")
	}
	dir, c := ledgerDir(t), &clock{at: testTime}
	cfg := Config{Dir: dir, Now: c.now}
	empty := heap()
	l, err := Open(cfg)
	require.NoError(t, err)
	const n = 500_000
	began := time.Now()
	took := many(t, l, 0, n, 32)
	at := func(q float64) time.Duration { return took[int(q*float64(len(took)-1))] }
	t.Logf("%d starts and ends in %v, 32 at once; a start: p50 %v, p99 %v, p99.9 %v, most %v", n, time.Since(began).Round(time.Millisecond), at(0.5), at(0.99), at(0.999), at(1))
	records := l.log.tree.Size()
	t.Logf("%d records, %d segments, %d MiB", records, len(segments(t, dir)), (int64(l.log.head.Base)+l.log.size)>>20)
	l.crash(t)
	reopen := func(label string) *Ledger {
		runtime.GC()
		began := time.Now()
		l, err := Open(cfg)
		took := time.Since(began)
		require.NoError(t, err)
		t.Logf("opened %s in %v; %d read again; heap %.0f MiB more", label, took.Round(time.Millisecond), l.Recovery().Rebuilt, heap()-empty)
		if label == "after a kill" {
			require.Less(t, took, 2*time.Second)
		}
		return l
	}
	took, l.views = nil, views{} // not in the figures below
	l = reopen("after a kill")
	require.Equal(t, records, l.Recovery().Records)
	require.Zero(t, l.Recovery().Rebuilt)
	l.crash(t)
	l.views = views{}
	for _, f := range glob(t, dir, "*.index") {
		require.NoError(t, os.Remove(f))
	}
	l = reopen("without snapshots")
	require.Equal(t, records, l.Recovery().Records)
	require.NoError(t, l.Close())
	l.views = views{}
	began = time.Now()
	report, err := Verify(dir)
	require.NoError(t, err)
	require.Equal(t, uint64(n), report.Starts)
	t.Logf("verified in %v", time.Since(began).Round(time.Millisecond))

	// Pruning while it is used: two segments at a time.
	c.add(30 * time.Hour)
	cfg.KeepBytes = 64 << 20
	cfg.segmentBytes = 1 << 40
	l = reopen("with pruning")
	require.NoError(t, l.Close())
	t.Logf("closed %d invocations, %d segments left", len(l.views.closed), len(segments(t, dir)))
	require.Greater(t, len(l.views.closed), n/20)
}

// pauses measures rotations from their first change of the directory to their last.
type pauses struct {
	began, last time.Time
	within      bool
	took        []time.Duration
}

func (p *pauses) step(what, base string) error {
	now := time.Now()
	switch {
	case what == "create" && base == "checkpoint.new":
		p.end()
		p.began = now
	case strings.HasSuffix(base, ".index.new"):
		p.within = true
	}
	p.last = now
	return nil
}

func (p *pauses) end() {
	if p.within {
		p.took = append(p.took, p.last.Sub(p.began).Round(10*time.Microsecond))
	}
	p.within = false
}

// How long starts wait for segments that are finished, and pruned, between them.
func TestPauses(t *testing.T) {
	if os.Getenv("LEND_TEST_LONG") == "" {
		t.Skip("needs LEND_TEST_LONG=1: measures")
	}
	for label, keep := range map[string]int64{"rotating": 0, "rotating-and-pruning": 1} {
		t.Run(label, func(t *testing.T) {
			c, p := &clock{at: testTime}, &pauses{}
			l := openWith(t, Config{Dir: ledgerDir(t), Now: c.now, KeepBytes: keep, step: p.step, segmentBytes: segmentBytes})
			var all []time.Duration
			for i := range 6 {
				all = append(all, many(t, l, i*50_000, 50_000, 8)...)
				c.add(30 * time.Hour)
			}
			require.NoError(t, l.Close())
			p.end()
			slices.Sort(all)
			at := func(q float64) time.Duration { return all[int(q*float64(len(all)-1))] }
			t.Logf("%d segments, %d closed; pauses %v; a start, 8 at once: p50 %v, p99 %v", len(segments(t, l.cfg.Dir)), len(l.views.closed), p.took, at(0.5), at(0.99))
		})
	}
}
