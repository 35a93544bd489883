//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Sample has the figures of one case in one repetition, by their units.
type Sample map[string]float64

// Case is one way to do the work of a group.
type Case struct {
	Group, Name string
	Run         func(context.Context) (Sample, error)
	Most        int // repetitions; 0: all

	samples []Sample // by repetition; nil where it failed
	steal   []float64
	err     error
}

// Suite runs its cases in turns. One goroutine uses it.
type Suite struct {
	Reps  int
	Limit time.Duration // no repetition begins that would end later; 0 is none
	Did   int           // repetitions that were begun
	Quick bool
	Only  []string // substrings of "group/name"; none means all
	Cases []*Case
}

// caseLimit is the longest that one case may take in one repetition.
const caseLimit = time.Minute

// Repetitions of what takes long, and of what takes very long.
const (
	fewReps   = 3
	leastReps = 2
)

// Add adds a case, unless it is not asked for.
func (s *Suite) Add(group, name string, run func(context.Context) (Sample, error)) {
	s.AddSome(0, group, name, run)
}

// AddSome adds one that is done a few times only, unless most is 0.
func (s *Suite) AddSome(most int, group, name string, run func(context.Context) (Sample, error)) {
	asked := func(only string) bool { return strings.Contains(group+"/"+name, only) }
	if len(s.Only) == 0 || slices.ContainsFunc(s.Only, asked) {
		s.Cases = append(s.Cases, &Case{Group: group, Name: name, Run: run, Most: most})
	}
}

// N is an amount of work, an eighth of it for a quick look.
func (s *Suite) N(n int) int {
	if s.Quick {
		n /= 8
	}
	return max(1, n)
}

// Run runs all cases, repetition by repetition. A case that fails is not tried
// again; the error has all failures.
func (s *Suite) Run(ctx context.Context) error {
	began, longest := time.Now(), time.Duration(0)
	for rep := range s.Reps {
		at := time.Now()
		if rep > 0 && s.Limit > 0 && at.Add(longest).Sub(began) > s.Limit {
			fmt.Fprintf(os.Stderr, "%d repetitions are enough: the time is over\n", rep)
			break
		}
		s.Did = rep + 1
		for i := range s.Cases {
			c := s.Cases[(i+rep*7)%len(s.Cases)]
			if c.err != nil || c.Most > 0 && rep >= c.Most {
				continue
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			c.once(ctx, fmt.Sprintf("[%d/%d]", rep+1, s.Reps))
		}
		longest = max(longest, time.Since(at))
	}
	var failed []error
	for _, c := range s.Cases {
		if c.err != nil {
			failed = append(failed, fmt.Errorf("%s: %s: %w", c.Group, c.Name, c.err))
		}
	}
	return errors.Join(failed...)
}

func (c *Case) once(ctx context.Context, label string) {
	ctx, cancel := context.WithTimeout(ctx, caseLimit)
	defer cancel()
	busy, stolen := ticks()
	began := time.Now()
	sample, err := c.Run(ctx)
	took := time.Since(began)
	if err != nil {
		c.err = err
		fmt.Fprintf(os.Stderr, "%s %s: %s: %v\n", label, c.Group, c.Name, err)
		return
	}
	after, stolenAfter := ticks()
	const tick = 10 * time.Millisecond
	perUnit := func(unit, as string, scale float64) {
		if n := sample[unit]; n > 0 {
			sample[as] = float64(after-busy) * float64(tick) / scale / n
			delete(sample, unit)
		}
	}
	perUnit(operations, "CPU µs", float64(time.Microsecond))
	perUnit(gibibytes, "CPU ms/GiB", float64(time.Millisecond))
	c.samples = append(c.samples, sample)
	c.steal = append(c.steal, 100*float64(stolenAfter-stolen)*tick.Seconds()/took.Seconds()/float64(runtime.NumCPU()))
	fmt.Fprintf(os.Stderr, "%s %-12s %-44s %6.1fs %v\n", label, c.Group, c.Name, took.Seconds(), sample)
	runtime.GC()
}

// Units that become a share of the machine's time: how often the work was done.
const (
	operations = "operations"
	gibibytes  = "GiB"
)

// ticks are the busy and the stolen time of all processors, in 10 ms.
func ticks() (busy, stolen uint64) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0
	}
	line, _, _ := strings.Cut(string(b), "\n")
	for i, f := range strings.Fields(line) {
		v, _ := strconv.ParseUint(f, 10, 64)
		switch i {
		case 1, 2, 3, 6, 7: // user, nice, system, irq, softirq
			busy += v
		case 8:
			stolen = v
		}
	}
	return busy, stolen
}

// Figure sums up one unit of one case.
type Figure struct {
	Median float64   `json:"median"`
	Min    float64   `json:"min"`
	Max    float64   `json:"max"`
	Values []float64 `json:"values"`
}

func figure(values []float64) Figure {
	if len(values) == 0 {
		return Figure{Median: math.NaN(), Min: math.NaN(), Max: math.NaN()}
	}
	return Figure{Median: median(values), Min: slices.Min(values), Max: slices.Max(values), Values: values}
}

func median(values []float64) float64 {
	v := slices.Sorted(slices.Values(values))
	if n := len(v); n%2 == 0 {
		return (v[n/2-1] + v[n/2]) / 2
	}
	return v[len(v)/2]
}

// of returns a unit's values.
func (c *Case) of(unit string) []float64 {
	var out []float64
	for _, s := range c.samples {
		if v, ok := s[unit]; ok {
			out = append(out, v)
		}
	}
	return out
}

// find returns the case, or nil if it was not run or has failed.
func (s *Suite) find(group, name string) *Case {
	for _, c := range s.Cases {
		if c.Group == group && c.Name == name && c.err == nil && len(c.samples) > 0 {
			return c
		}
	}
	return nil
}

func (s *Suite) added(group, name string) bool {
	return slices.ContainsFunc(s.Cases, func(c *Case) bool { return c.Group == group && c.Name == name })
}

// ratio is a's unit by b's, repetition by repetition.
func ratio(a, b *Case, unit string) (Figure, bool) {
	if a == nil || b == nil {
		return Figure{}, false
	}
	x, y := a.of(unit), b.of(unit)
	var out []float64
	for i := range min(len(x), len(y)) {
		if y[i] > 0 {
			out = append(out, x[i]/y[i])
		}
	}
	return figure(out), len(out) > 0
}
