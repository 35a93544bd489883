//go:build linux

package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lendcli/lend/e2e/rig"
)

// inject makes system calls of the gateway fail, as strace -e inject has it, until
// the function that it returns is called, which wants some to have failed.
func inject(t *testing.T, g *rig.Gateway, calls, how string) (stop func()) {
	t.Helper()
	var log rig.Log
	made := filepath.Join(t.TempDir(), "calls")
	args := []string{"-f", "-o", made, "-e", "trace=" + calls, "-e", "inject=" + calls + ":" + how}
	for _, pid := range append(children(t, g.Cmd.Process.Pid), strconv.Itoa(g.Cmd.Process.Pid)) {
		args = append(args, "-p", pid)
	}
	cmd := exec.CommandContext(context.Background(), "strace", args...)
	cmd.Stderr = &log
	require.NoError(t, cmd.Start())
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			_ = cmd.Process.Signal(os.Interrupt)
			_ = cmd.Wait() // it dies of the signal
			b, err := os.ReadFile(made)
			require.NoError(t, err)
			require.Contains(t, string(b), "(INJECTED)", "no call of %s came", calls)
		}
	}
	t.Cleanup(stop)
	require.True(t, rig.Until(rig.Patience, func() bool {
		return strings.Count(log.String(), "attached") == (len(args)-6)/2
	}), "%s", &log)
	return stop
}

// children are the supervisors that wait for work.
func children(t *testing.T, pid int) (pids []string) {
	t.Helper()
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	require.NoError(t, err)
	for _, list := range lists {
		b, err := os.ReadFile(list)
		require.NoError(t, err)
		pids = append(pids, strings.Fields(string(b))...)
	}
	return pids
}

// failed is what the gateway says of its ledger.
func failed(t *testing.T, w *rig.World) string {
	t.Helper()
	var status struct{ Ledger struct{ Failed string } }
	require.NoError(t, json.Unmarshal([]byte(w.Lend(w.Owner, "status", "--json")), &status))
	return status.Ledger.Failed
}

// TestLedgerCannotWrite: a write or a sync of the record fails. Nothing starts, then
// or later, until the owner starts the gateway again; a full disk is waited for.
func TestLedgerCannotWrite(t *testing.T) {
	rig.Need(t, "strace", "go")
	for _, c := range []struct {
		name, calls, how string
		status           int
		code             string
		recovers         bool
		part             string
	}{
		{"sync", "fdatasync", "error=EIO", 126, "GATEWAY_LOCKED", false, tcp},
		{"sync-quic", "fdatasync", "error=EIO", 126, "GATEWAY_LOCKED", false, quic},
		{"sync-once", "fdatasync", "error=EIO:when=1", 126, "GATEWAY_LOCKED", false, tcp},
		{"write", "pwrite64", "error=EIO", 126, "GATEWAY_LOCKED", false, quic},
		{"read-only", "pwrite64", "error=EROFS", 126, "GATEWAY_LOCKED", false, tcp},
		{"no-space", "pwrite64", "error=ENOSPC", 75, "BUSY", true, tcp},
		{"no-space-quic", "pwrite64", "error=ENOSPC", 75, "BUSY", true, quic},
		{"quota", "pwrite64", "error=EDQUOT", 75, "BUSY", true, quic},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := rig.New(t, "", "1m")
			g := serve(w)
			lease := w.Lease(c.part)
			long := w.Run(lease, "op-that-runs-meanwhile", "sleep")
			long.Start(t)
			require.True(t, rig.Until(rig.Patience, func() bool { return w.Starts() == 1 }))

			stop := inject(t, g, c.calls, c.how)
			for range 3 {
				status, text := once(t, w, lease, "op-with-a-failing-disk")
				require.Equal(t, c.status, status, text)
				require.Contains(t, text, c.code)
			}
			require.Equal(t, 1, w.Starts(), "nothing ran without a record")
			stop()
			require.Equal(t, c.recovers, failed(t, w) == "")
			status, text := once(t, w, lease, "op-after-the-disk-failed")
			if c.recovers {
				require.Zero(t, status, text)
			} else {
				require.Equal(t, 126, status, text)
				require.Contains(t, text, "GATEWAY_LOCKED")
			}
			require.NoError(t, long.Cmd.Process.Signal(os.Interrupt))
			require.Equal(t, 130, long.Wait(t, rig.Patience), "%s", &long.Stderr)

			ran := w.Starts()
			_ = g.Stop(t) // it may say that its ledger failed
			serve(w)
			lease = w.Lease(c.part)
			status, text = once(t, w, lease, "op-after-the-disk-failed")
			require.Contains(t, []int{0, 255}, status, text)
			// The one that was refused may be on record, whole but not durable: then its
			// outcome is unknown, and it never runs.
			status, text = once(t, w, lease, "op-with-a-failing-disk")
			require.Contains(t, []int{0, 255}, status, text)
			require.LessOrEqual(t, w.Starts(), ran+2)
			for _, o := range w.Operations() {
				require.NotEqual(t, "running", o.State, "%+v", o)
				if c.recovers && o.ID == "op-that-runs-meanwhile" {
					require.Equal(t, "CANCELLED", o.Code)
				}
			}
			w.Verify()
		})
	}
}

// TestNoDescriptors: system calls that make a descriptor fail. Starts are refused, and
// go on when there are some again.
func TestNoDescriptors(t *testing.T) {
	rig.Need(t, "strace", "go")
	for _, c := range []struct{ name, calls, how, part string }{
		{"files", "openat,open", "error=EMFILE", tcp},
		{"files-quic", "openat,open", "error=EMFILE", quic},
		{"machine", "openat,open,pipe2,socketpair,memfd_create,pidfd_open", "error=ENFILE", tcp},
		{"machine-quic", "openat,open,pipe2,socketpair,memfd_create,pidfd_open", "error=ENFILE", quic},
		{"processes", "pipe2,socketpair,memfd_create", "error=EMFILE", tcp},
		{"processes-quic", "pipe2,socketpair,memfd_create", "error=EMFILE", quic},
		{"memory", "execve,execveat", "error=ENOMEM", tcp},
		{"busy", "execve,execveat", "error=EAGAIN", quic},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := rig.New(t, "", "1m")
			g := serve(w)
			lease := w.Lease(c.part)
			status, text := once(t, w, lease, "")
			require.Zero(t, status, text)
			stop := inject(t, g, c.calls, c.how)
			ran, said := 0, map[int]int{}
			for range 5 {
				status, text = once(t, w, lease, "")
				said[status]++
				if status == 0 {
					ran++
					continue
				}
				require.Contains(t, []int{75, 126}, status, text)
			}
			require.Equal(t, 1+ran, w.Starts())
			stop()
			t.Logf("statuses: %v; %s", said, text)
			require.True(t, g.Running())
			status, text = once(t, w, lease, "")
			require.Zero(t, status, text)
			for _, o := range w.Operations() {
				require.Contains(t, []string{"ended", "not-started"}, o.State, "%+v", o)
			}
		})
	}
}

// TestNobodyIsAccepted: connections cannot be accepted for want of descriptors, which
// takes one each over TCP alone. The gateway listens on when there are some.
func TestNobodyIsAccepted(t *testing.T) {
	rig.Need(t, "strace", "go")
	for name, how := range map[string]string{"process": "error=EMFILE", "machine": "error=ENFILE", "memory": "error=ENOMEM"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := rig.New(t, "", "1m")
			g := serve(w)
			lease := w.Lease(tcp)
			stop := inject(t, g, "accept4", how)
			status, text := once(t, w, lease, "")
			require.Equal(t, 125, status, text)
			stop()
			require.True(t, g.Running())
			require.True(t, rig.Until(rig.Patience, func() bool { // a listener that gave up is made anew
				status, text = once(t, w, lease, "")
				return status == 0
			}), text)
			require.Equal(t, 1, w.Starts())
		})
	}
}

// TestFewDescriptors: the limit of descriptors is lowered until there is none left.
func TestFewDescriptors(t *testing.T) {
	rig.Need(t, "go")
	for name, part := range map[string]string{"tcp": tcp, "quic": quic} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := rig.New(t, "", "1m")
			g := serve(w)
			lease := w.Lease(part)
			status, text := once(t, w, lease, "")
			require.Zero(t, status, text)
			pid := g.Cmd.Process.Pid
			var was unix.Rlimit
			require.NoError(t, unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &was))
			open, err := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/fd")
			require.NoError(t, err)
			said, ran := map[int]int{}, 0
			for spare := range 12 {
				few := unix.Rlimit{Cur: uint64(len(open) + spare - 2), Max: was.Max}
				require.NoError(t, unix.Prlimit(pid, unix.RLIMIT_NOFILE, &few, nil))
				status, text := once(t, w, lease, "")
				said[status]++
				if status == 0 {
					ran++
					continue
				}
				require.Contains(t, []int{75, 125, 126}, status, text)
				t.Logf("%d spare: %s", spare-2, text)
			}
			require.Less(t, ran, 12, "the limit was never felt")
			require.Equal(t, 1+ran, w.Starts())
			require.NoError(t, unix.Prlimit(pid, unix.RLIMIT_NOFILE, &was, nil))
			t.Logf("%d descriptors; statuses: %v", len(open), said)
			require.True(t, g.Running())
			status, text = once(t, w, lease, "")
			require.Zero(t, status, text)
			for _, o := range w.Operations() {
				require.Contains(t, []string{"ended", "not-started"}, o.State, "%+v", o)
			}
		})
	}
}
