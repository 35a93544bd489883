//go:build linux

package main

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestMedian(t *testing.T) {
	require.InDelta(t, 2, median([]float64{3, 1, 2}), 0)
	require.InDelta(t, 2.5, median([]float64{4, 1, 3, 2}), 0)
	f := figure([]float64{5, 1, 3})
	require.Equal(t, Figure{Median: 3, Min: 1, Max: 5, Values: []float64{5, 1, 3}}, f)
}

// A ratio is taken within each repetition, not of two medians.
func TestRatio(t *testing.T) {
	a := &Case{samples: []Sample{{p50: 2}, {p50: 30}, {p50: 40}}}
	b := &Case{samples: []Sample{{p50: 1}, {p50: 10}, {p50: 40}}}
	r, ok := ratio(a, b, p50)
	require.True(t, ok)
	require.Equal(t, []float64{2, 3, 1}, r.Values)
	_, ok = ratio(a, nil, p50)
	require.False(t, ok)
	_, ok = ratio(a, b, p99)
	require.False(t, ok)
}

func TestVerdict(t *testing.T) {
	most := Bar{Bar: 2, Beyond: 1.5}
	least := Bar{Bar: 0.6, Beyond: 0.8, AtLeast: true}
	require.Equal(t, []string{missed, reached, beyond}, []string{most.verdict(2.1), most.verdict(2), most.verdict(1.5)})
	require.Equal(t, []string{missed, reached, beyond}, []string{least.verdict(0.5), least.verdict(0.6), least.verdict(0.9)})
}

// Each bar is about cases that are added, with a unit that they have.
func TestBarsNameCases(t *testing.T) {
	f := &field{ways: map[string]way{}, lines: map[string]way{}, raw: map[string]raw{}}
	nobody := func(context.Context, []string, io.Reader, io.Writer) error { return nil }
	f.add(byLocal, nobody)
	f.add(bySSHGo, nobody)
	for _, tr := range transports() {
		f.add(bySDK(tr), nobody)
	}
	for _, name := range []string{byLocal, byShim, byLend("TCP"), byLend("QUIC"), bySSHMux, bySSH, bySSHC25} {
		f.lines[name] = nobody
	}
	s := &Suite{Reps: 1}
	f.addTo(s)
	names := map[string]bool{}
	for _, c := range s.Cases {
		require.False(t, names[c.Group+"/"+c.Name], "twice: %s/%s", c.Group, c.Name)
		names[c.Group+"/"+c.Name] = true
	}
	for _, b := range bars() {
		require.True(t, names[b.Group+"/"+b.Of], b)
		require.True(t, b.By == "" || names[b.Group+"/"+b.By], b)
	}
}

// What takes long is done a few times, and no repetition begins that would be late.
func TestSuiteIsBounded(t *testing.T) {
	ran := map[string]int{}
	s := &Suite{Reps: 9, Limit: time.Hour}
	count := func(name string) func(context.Context) (Sample, error) {
		return func(context.Context) (Sample, error) { ran[name]++; return Sample{p50: 1}, nil }
	}
	s.Add("group", "short", count("short"))
	s.AddSome(2, "group", "long", count("long"))
	require.NoError(t, s.Run(t.Context()))
	require.Equal(t, map[string]int{"short": 9, "long": 2}, ran)
	require.Equal(t, 9, s.Did)
	s = &Suite{Reps: 9, Limit: 1}
	s.Add("group", "short", count("late"))
	require.NoError(t, s.Run(t.Context()))
	require.Equal(t, []int{1, 1}, []int{ran["late"], s.Did}, "one there is in any case")
}

func TestSuite(t *testing.T) {
	var ran []string
	s := &Suite{Reps: 2, Only: []string{"one/", "b"}}
	for _, name := range []string{"a", "b"} {
		for _, group := range []string{"one", "two"} {
			s.Add(group, name, func(context.Context) (Sample, error) {
				ran = append(ran, group+name)
				if group == "two" {
					return nil, errors.New("broken")
				}
				return Sample{p50: float64(len(ran)), operations: 10}, nil
			})
		}
	}
	err := s.Run(t.Context())
	require.ErrorContains(t, err, "two: b: broken")
	require.ElementsMatch(t, []string{"onea", "oneb", "twob", "onea", "oneb"}, ran, "what failed is not tried again")
	r := report(s, errors.New("no sshd"))
	text := r.Markdown()
	require.Contains(t, text, "OpenSSH was not measured: no sshd.")
	require.Contains(t, text, "| b | failed: broken |")
	require.Equal(t, 2, strings.Count(text, "### "))
	_, err = r.JSON()
	require.NoError(t, err)
	require.Contains(t, string(r.plot()), "</svg>")
	require.Contains(t, string(r.plotStart()), "</svg>")
	require.Contains(t, r.document("performance"), "(performance-start.svg)")
	require.Empty(t, r.Missing, "nothing of it was asked for")
	require.Error(t, Report{Missing: []string{"x"}}.gaps(true))
	require.NoError(t, Report{Missing: []string{"x"}}.gaps(false))
	require.Contains(t, Report{Missing: []string{"x"}}.Summary(), "no figure")
}
