//go:build linux

package faults

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/e2e/rig"
)

// resident returns what a process holds of memory, in bytes.
func resident(t *testing.T, pid int, field string) int64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	require.NoError(t, err)
	for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
		if rest, ok := strings.CutPrefix(s.Text(), field+":"); ok {
			n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			require.NoError(t, err)
			return n << 10
		}
	}
	require.Fail(t, "no "+field)
	return 0
}

// TestReaderThatStops: an output that nobody reads costs the gateway no more than a
// window, and then arrives whole.
func TestReaderThatStops(t *testing.T) {
	rig.Need(t, "go")
	total, pause := 128<<20, 20*time.Second
	if rig.Long() {
		total, pause = 1<<30, time.Minute
	}
	for name, part := range map[string]string{"tcp": tcp, "quic": quic} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := rig.New(t, "", "2m")
			g := serve(w)
			lease := w.Lease(part)
			for range 3 {
				status, text := once(t, w, lease, "")
				require.Zero(t, status, text)
			}
			pid := g.Cmd.Process.Pid
			// The peak counts from here on.
			require.NoError(t, os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0))
			before := resident(t, pid, "VmRSS")

			run := w.Run(lease, "", "print", strconv.Itoa(total))
			out, err := run.Cmd.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, run.Cmd.Start())
			defer func() { _ = run.Cmd.Process.Kill() }()
			head := make([]byte, 1<<20)
			_, err = io.ReadFull(out, head)
			require.NoError(t, err)
			<-time.After(pause) // the reader stops
			stopped := resident(t, pid, "VmHWM") - before
			require.Less(t, stopped, int64(32<<20))
			began := time.Now()
			same(t, io.MultiReader(bytes.NewReader(head), out), total)
			took := time.Since(began)
			require.NoError(t, run.Cmd.Wait(), "%s", &run.Stderr)
			peak := resident(t, pid, "VmHWM") - before
			require.Less(t, peak, int64(32<<20))
			require.Equal(t, 4, w.Starts())
			t.Logf("%d MiB after %s of silence: %.1f MiB more while it was silent, %.1f MiB at the most (from %.1f), %.0f MiB/s afterwards",
				total>>20, pause, mib(stopped), mib(peak), mib(before), mib(int64(total))/took.Seconds())
		})
	}
}

// TestReaderThatStopsAfterTheEnd: lend run in front of a pager that is left alone gets
// every byte and the status, however short the grace for callers that are gone is.
func TestReaderThatStopsAfterTheEnd(t *testing.T) {
	rig.Need(t, "go")
	pause := 20 * time.Second
	if rig.Long() {
		pause = 90 * time.Second // beyond the time for a caller that is gone, and for one frame
	}
	for name, part := range map[string]string{"tcp": tcp, "quic": quic} {
		for _, total := range []int{200 << 10, 900 << 10} { // in the stream's window, and beyond
			t.Run(fmt.Sprintf("%s-%d", name, total), func(t *testing.T) {
				t.Parallel()
				w := rig.New(t, "", "1s")
				g := serve(w)
				run := w.Run(w.Lease(part), "", "print", strconv.Itoa(total))
				out, err := run.Cmd.StdoutPipe()
				require.NoError(t, err)
				require.NoError(t, run.Cmd.Start())
				defer func() { _ = run.Cmd.Process.Kill() }()
				before := resident(t, g.Cmd.Process.Pid, "VmRSS")
				<-time.After(pause) // the reader has not begun yet
				grown := resident(t, g.Cmd.Process.Pid, "VmRSS") - before
				same(t, out, total)
				require.NoError(t, run.Cmd.Wait(), "%s", &run.Stderr)
				require.Equal(t, 1, w.Starts())
				t.Logf("%d KiB after %s of silence, %.1f MiB more meanwhile", total>>10, pause, mib(grown))
			})
		}
	}
}

func mib(n int64) float64 { return float64(n) / (1 << 20) }

// same compares a stream with the pattern.
func same(t *testing.T, r io.Reader, total int) {
	t.Helper()
	const period = 37
	want := rig.Pattern(1<<16 + period)
	b, at := make([]byte, 1<<16), 0
	for {
		n, err := r.Read(b)
		if !bytes.Equal(b[:n], want[at%period:at%period+n]) {
			require.Fail(t, "wrong bytes", "after %d", at)
		}
		at += n
		if err != nil {
			require.ErrorIs(t, err, io.EOF)
			require.Equal(t, total, at)
			return
		}
	}
}
