//go:build linux

package main

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write what is measured into testdata")

// TestMain is the far process of a long link too.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "-role" && os.Args[2] == "far" {
		if err := runErrand(); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func full(t *testing.T) {
	t.Helper()
	if os.Getenv("LEND_TEST_FULL") == "" {
		t.Skip("LEND_TEST_FULL is not set")
	}
}

const allocsFile = "testdata/allocs.txt"

// counted are the packages whose benchmarks are counted.
func counted() []string {
	return []string{"./lease", "./gateway/ledger", "./e2e/bench"}
}

// TestAllocations: no benchmark allocates more often than the table says. It counts in
// programs without the race detector, which changes what is pooled; nothing is timed.
func TestAllocations(t *testing.T) {
	full(t)
	root, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), "go", append([]string{
		"test", "-run=^$", "-bench=.", "-benchmem", "-benchtime=64x", "-timeout=10m",
	}, counted()...)...)
	cmd.Dir = strings.TrimSpace(string(root))
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	got := allocations(string(out))
	if *update {
		var b strings.Builder
		for _, name := range slices.Sorted(maps.Keys(got)) {
			fmt.Fprintf(&b, "%s %d\n", name, got[name])
		}
		require.NoError(t, os.MkdirAll(filepath.Dir(allocsFile), 0o750))
		require.NoError(t, os.WriteFile(allocsFile, []byte(b.String()), 0o600))
	}
	text, err := os.ReadFile(allocsFile)
	require.NoError(t, err)
	want := map[string]int{}
	for line := range strings.Lines(string(text)) {
		name, n, _ := strings.Cut(strings.TrimSpace(line), " ")
		want[name], err = strconv.Atoi(n)
		require.NoError(t, err)
	}
	require.ElementsMatch(t, slices.Collect(maps.Keys(want)), slices.Collect(maps.Keys(got)), "write the table anew: -update")
	for name, n := range got {
		require.LessOrEqual(t, n, tolerated(want[name]), "%s: %d allocations, %d in the table", name, n, want[name])
	}
}

// tolerated is what a count may come to: a few runs share what is allocated once.
func tolerated(n int) int { return n + max(2, n/10) }

// allocations reads the output of go test -bench -benchmem.
func allocations(out string) map[string]int {
	line := regexp.MustCompile(`^(Benchmark\S+?)(?:-\d+)?\s.*\s(\d+) allocs/op$`)
	got, pkg := map[string]int{}, ""
	for l := range strings.Lines(out) {
		l = strings.TrimSpace(l)
		if p, ok := strings.CutPrefix(l, "pkg: github.com/lendcli/lend/"); ok {
			pkg = p
		}
		if m := line.FindStringSubmatch(l); m != nil {
			got[pkg+"."+m[1]], _ = strconv.Atoi(m[2])
		}
	}
	return got
}

func TestAllocationsAreRead(t *testing.T) {
	require.Equal(t, map[string]int{"lease.BenchmarkVerify/fresh": 12, "lease.BenchmarkX": 0}, allocations(`goos: linux
pkg: github.com/lendcli/lend/lease
BenchmarkVerify/fresh-2   	      64	     52000 ns/op	    1234 B/op	      12 allocs/op
BenchmarkX	      64	     5 ns/op	 1.00 MB/s	    0 B/op	      0 allocs/op
PASS
`))
	require.Equal(t, []int{2, 11, 110}, []int{tolerated(0), tolerated(9), tolerated(100)})
}

// TestRoundTrips: the steadiest ratios of the suite are the round trips that a start
// takes on a long line: on one of 400 ms a busy machine adds little, and one round trip
// more is one round trip more.
func TestRoundTrips(t *testing.T) {
	full(t)
	ctx := t.Context()
	dir := t.TempDir()
	bin := filepath.Join(dir, "bin")
	require.NoError(t, build(ctx, bin))
	l := &longLink{dir: filepath.Join(dir, "far"), bin: bin, ns: fmt.Sprintf("lend-gate-%d", os.Getpid()), trip: 400 * time.Millisecond}
	defer l.close()
	for _, c := range []struct {
		what, transport string
		n               int
		most            float64
	}{
		{warmStart, "TCP+Noise", 3, 1.7},
		{coldStart, "TCP+Noise", 3, 4.8},
		{coldStart, "QUIC", 3, 2.8},
	} {
		s, err := l.do(ctx, c.what, c.transport, c.n)
		require.NoError(t, err)
		t.Logf("%s, %s: %.2f round trips", c.what, c.transport, s[roundTrips])
		require.LessOrEqual(t, s[roundTrips], c.most, "%s, %s", c.what, c.transport)
	}
}
