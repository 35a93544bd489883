//go:build linux

package timens

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/e2e/rig"
	"github.com/lendcli/lend/gateway/steady"
)

func TestMain(m *testing.M) { rig.Main(m) }

// uptime reads the boot time of a process's namespace.
func uptime(t *testing.T, pid int) time.Duration {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "timens_offsets"))
	require.NoError(t, err)
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); f[0] == "boottime" {
			n, err := strconv.ParseInt(f[1], 10, 64)
			require.NoError(t, err)
			return steady.Stopwatch()() + time.Duration(n)*time.Second
		}
	}
	require.Fail(t, "no boot time")
	return 0
}

// issue writes a lease that lives for so long.
func issue(w *rig.World, life time.Duration) string {
	file := filepath.Join(w.T.TempDir(), "l.lease")
	w.Lend(w.Owner, "lease", "issue", "--to", "caller", "--local-addresses", "--life", life.String(), "--out", file, "fx", "print", "sleep")
	return file
}

// serveIn serves in a time namespace whose boot time is so far from this one's.
func serveIn(w *rig.World, offset time.Duration) *rig.Gateway {
	w.T.Helper()
	outside := steady.Stopwatch()()
	w.OwnerIn = []string{"unshare", "--time", "--boottime", strconv.Itoa(int(offset.Seconds()))}
	g := w.Serve("--listen", "/ip4/127.0.0.1/tcp/0", "--listen", "/ip4/127.0.0.1/udp/0/quic-v1")
	w.OwnerIn = nil
	require.InDelta(w.T, (outside + offset).Seconds(), uptime(w.T, g.Cmd.Process.Pid).Seconds(), 60, "it is in a time namespace")
	return g
}

// TestBootTime: a lease lives exactly as long whatever the boot time of the
// machine is, and over a start with less of it, as after a boot; what has expired
// stays so.
func TestBootTime(t *testing.T) {
	rig.Need(t, "unshare")
	w := rig.New(t, "", "1m")
	for name, offset := range map[string]time.Duration{
		"up-for-a-year": 365 * 24 * time.Hour,
		"just-booted":   -steady.Stopwatch()() + 100*time.Second,
	} {
		t.Run(name, func(t *testing.T) {
			g := serveIn(w, offset)
			const life = 4 * time.Second
			issued := time.Now()
			file := issue(w, life)
			run := w.Run(file, "op-"+name+"-00000000", "sleep")
			run.Start(t)
			require.Equal(t, 124, run.Wait(t, rig.Patience), "%s", &run.Stderr)
			took := time.Since(issued)
			require.Contains(t, run.Stderr.String(), "LEASE_EXPIRED")
			require.Greater(t, took, life-time.Second, "not sooner; leases are cut to milliseconds, and issuing takes a while")
			require.Less(t, took, life+2*time.Second)

			good := issue(w, time.Minute)
			require.NoError(t, g.Stop(t))
			g = serveIn(w, offset/2)
			require.Zero(t, finished(t, w, again(t, w, good), "print", "1"), "a start of the machine ends no lease")
			require.Equal(t, 125, finished(t, w, again(t, w, file), "print", "1"), "the caller looks itself")
			require.NoError(t, g.Stop(t))
		})
	}
}

// again is a lease file with the addresses of the gateway of now.
func again(t *testing.T, w *rig.World, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	fresh, err := os.ReadFile(issue(w, time.Minute))
	require.NoError(t, err)
	text, err := readdress(b, fresh)
	require.NoError(t, err)
	out := filepath.Join(t.TempDir(), "again.lease")
	require.NoError(t, os.WriteFile(out, text, 0o600))
	return out
}

func finished(t *testing.T, w *rig.World, file string, args ...string) int {
	t.Helper()
	run := w.Run(file, "", args...)
	run.Start(t)
	return run.Wait(t, rig.Patience)
}

// TestStoppedForAWhile: a gateway that stands still while a lease expires ends what
// runs as soon as it goes on, and starts nothing under it.
func TestStoppedForAWhile(t *testing.T) {
	rig.Need(t, "unshare")
	w := rig.New(t, "", "1m")
	g := serveIn(w, time.Hour)
	file := issue(w, 5*time.Second)
	expires := time.Now().Add(5 * time.Second)
	run := w.Run(file, "op-stopped-for-a-while", "sleep")
	run.Start(t)
	require.True(t, rig.Until(rig.Patience, func() bool { return w.Starts() == 1 }))
	require.NoError(t, g.Cmd.Process.Signal(syscall.SIGSTOP))
	require.True(t, rig.Until(rig.Patience, func() bool { return time.Now().After(expires.Add(time.Second)) }))
	began := time.Now()
	require.NoError(t, g.Cmd.Process.Signal(syscall.SIGCONT))
	require.Equal(t, 124, run.Wait(t, rig.Patience), "%s", &run.Stderr)
	require.Less(t, time.Since(began), 2*time.Second)
	require.Contains(t, run.Stderr.String(), "LEASE_EXPIRED")
	require.NoError(t, g.Stop(t))
}
