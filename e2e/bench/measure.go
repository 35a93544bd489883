//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Units of samples.
const (
	p50    = "p50 µs"
	p99    = "p99 µs"
	perSec = "per s"
	mibs   = "MiB/s"
)

// A way runs one command: nil stdin is none.
type way func(ctx context.Context, command []string, stdin io.Reader, stdout io.Writer) error

// latency runs f n times, after a few that do not count.
func latency(ctx context.Context, n int, f func(context.Context) error) (Sample, error) {
	warm := n/20 + 1
	took := make([]time.Duration, 0, n)
	for i := range warm + n {
		began := time.Now()
		if err := f(ctx); err != nil {
			return nil, err
		}
		if i >= warm {
			took = append(took, time.Since(began))
		}
	}
	s := percentiles(took)
	s[operations] = float64(warm + n)
	return s, nil
}

func percentiles(took []time.Duration) Sample {
	slices.Sort(took)
	micros := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
	return Sample{p50: micros(took[len(took)/2]), p99: micros(took[len(took)*99/100])}
}

// rate keeps n workers at f for a while.
func rate(ctx context.Context, n int, during time.Duration, f func(context.Context) error) (Sample, error) {
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex // guards took and failed
		took  []time.Duration
		fault error
	)
	began := time.Now()
	end := began.Add(during)
	for range n {
		wg.Go(func() {
			var mine []time.Duration
			for time.Now().Before(end) {
				at := time.Now()
				if err := f(ctx); err != nil {
					mu.Lock()
					fault = errors.Join(fault, err)
					mu.Unlock()
					return
				}
				mine = append(mine, time.Since(at))
			}
			mu.Lock()
			defer mu.Unlock()
			took = append(took, mine...)
		})
	}
	wg.Wait()
	if fault != nil {
		return nil, fault
	}
	elapsed := time.Since(began).Seconds()
	s := percentiles(took)
	s[perSec], s[operations] = float64(len(took))/elapsed, float64(len(took))
	return s, nil
}

// through times f, which moves n bytes.
func through(n int64, f func() error) (Sample, error) {
	began := time.Now()
	if err := f(); err != nil {
		return nil, err
	}
	return Sample{mibs: float64(n) / (1 << 20) / time.Since(began).Seconds(), gibibytes: float64(n) / (1 << 30)}, nil
}

// echo measures how long a line takes to a command that copies, and back.
func echo(ctx context.Context, n int, run way) (Sample, error) {
	in, feed := io.Pipe()
	back, out := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := run(ctx, []string{"cat"}, in, out)
		_ = out.CloseWithError(io.EOF)
		ended <- err
	}()
	line := make([]byte, 64)
	s, err := latency(ctx, n, func(context.Context) error {
		if _, err := feed.Write(line); err != nil {
			return err
		}
		_, err := io.ReadFull(back, line)
		return err
	})
	_ = feed.Close()
	_, _ = io.Copy(io.Discard, back)
	return s, errors.Join(err, <-ended)
}

// beside measures short commands while a long output runs.
func beside(ctx context.Context, n int, short, bulk way) (Sample, error) {
	var (
		stop  atomic.Bool
		moved counter
	)
	ended := make(chan error, 1)
	go func() {
		var err error
		for err == nil && !stop.Load() {
			err = bulk(ctx, []string{"produce", fmt.Sprint(64 << 20)}, nil, &moved)
		}
		ended <- err
	}()
	for moved.Load() == 0 {
		select {
		case err := <-ended:
			return nil, errors.Join(errors.New("the bulk output has ended"), err)
		case <-time.After(time.Millisecond):
		}
	}
	before, began := moved.Load(), time.Now()
	s, err := latency(ctx, n, func(ctx context.Context) error { return short(ctx, []string{"true"}, nil, io.Discard) })
	if s != nil {
		s["bulk "+mibs] = float64(moved.Load()-before) / (1 << 20) / time.Since(began).Seconds()
		delete(s, operations)
	}
	stop.Store(true)
	return s, errors.Join(err, <-ended)
}

// counter counts the bytes that it drops.
type counter struct{ atomic.Int64 }

func (c *counter) Write(b []byte) (int, error) {
	c.Add(int64(len(b)))
	return len(b), nil
}

// zeros are n bytes.
func zeros(n int64) io.Reader { return io.LimitReader(zero{}, n) }

type zero struct{}

func (zero) Read(b []byte) (int, error) { return len(b), nil }
