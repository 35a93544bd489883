//go:build linux

package faults

import (
	"cmp"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lendcli/lend/e2e/rig"
	"github.com/lendcli/lend/lease"
)

func TestMain(m *testing.M) { rig.Main(m) }

const (
	tcp  = "/tcp/"
	quic = "/quic-v1"
)

func serve(w *rig.World) *rig.Gateway {
	return w.Serve("--listen", "/ip4/127.0.0.1/tcp/0", "--listen", "/ip4/127.0.0.1/udp/0/quic-v1")
}

// once makes one short run that does not wait and returns its exit status.
func once(t *testing.T, w *rig.World, lease, op string) (int, string) {
	t.Helper()
	words := []string{"run", "--lease", lease, "--wait", "0s"}
	if op != "" {
		words = append(words, "--op", op)
	}
	out, err := w.Try(w.Caller, append(words, "fx", "print", "17")...)
	if err == nil {
		require.Equal(t, string(rig.Pattern(17)), out)
		return 0, ""
	}
	var exit interface{ ExitCode() int }
	require.ErrorAs(t, err, &exit)
	return exit.ExitCode(), err.Error()
}

// small is a file system of its own, of a few megabytes.
func small(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, unix.Mount("lend-test", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=48m,mode=0700"))
	t.Cleanup(func() { require.NoError(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	return dir
}

// fill leaves no room on the file system of a directory, and returns what gives it
// back.
func fill(t *testing.T, dir string) (free func()) {
	t.Helper()
	path := filepath.Join(dir, "filler")
	f, err := os.Create(path)
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	for size := 1 << 20; size > 0; {
		_, err := f.Write(make([]byte, size))
		if errors.Is(err, unix.ENOSPC) {
			size /= 2
			continue
		}
		require.NoError(t, err)
	}
	return func() { require.NoError(t, os.Remove(path)) }
}

// untilRefused makes runs until one is refused: the last page of the ledger has room
// for some more. It returns how many ran.
func untilRefused(t *testing.T, w *rig.World, lease string) (ran int) {
	t.Helper()
	status, text := 0, ""
	require.True(t, rig.Until(rig.Patience, func() bool {
		if status, text = once(t, w, lease, ""); status == 0 {
			ran++
		}
		return status != 0
	}))
	require.Equal(t, 75, status, text)
	require.Contains(t, text, "BUSY")
	return ran
}

// addressOf is where the gateway of a lease listens.
func addressOf(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	f, err := lease.ParseArmor(b, lease.AddressRule{AllowLocal: true})
	require.NoError(t, err)
	require.Len(t, f.Addresses, 1)
	bare, _, _ := strings.Cut(f.Addresses[0], "/p2p/")
	return bare
}

// each runs a test over each transport, one after the other.
func each(t *testing.T, test func(t *testing.T, transport string)) {
	t.Helper()
	rig.Need(t, "go")
	for name, transport := range map[string]string{"tcp": tcp, "quic": quic} {
		t.Run(name, func(t *testing.T) { test(t, transport) })
	}
}

// TestFullDisk: no room below LEND_DIR.
func TestFullDisk(t *testing.T) { each(t, fullDisk) }

func fullDisk(t *testing.T, transport string) { //nolint:thelper // the test itself
	dir := small(t)
	w := rig.New(t, filepath.Join(dir, "owner"), "1m")
	g := serve(w)
	lease := w.Lease(transport)
	long := w.Run(lease, "op-that-runs-meanwhile", "sleep")
	long.Start(t)
	require.True(t, rig.Until(rig.Patience, func() bool { return w.Starts() == 1 }))
	status, text := once(t, w, lease, "")
	require.Zero(t, status, text)

	free := fill(t, dir)
	ran := 2 + untilRefused(t, w, lease)
	for range 5 {
		status, text = once(t, w, lease, "op-refused-on-a-full-disk")
		require.Equal(t, 75, status, text)
	}
	require.Equal(t, ran, w.Starts(), "nothing ran without a record")
	require.True(t, g.Running())
	require.NoError(t, long.Cmd.Process.Signal(syscall.SIGINT))
	require.Equal(t, 130, long.Wait(t, rig.Patience), "%s", &long.Stderr)
	require.Contains(t, w.Lend(w.Owner, "ops", "show", "op-that-runs-meanwhile"), "CANCELLED")

	// Room again: no restart is needed.
	free()
	status, text = once(t, w, lease, "op-refused-on-a-full-disk")
	require.Zero(t, status, text)
	require.Equal(t, ran+1, w.Starts())

	// The ends are on record.
	require.NoError(t, g.Stop(t))
	w.Verify()
	free = fill(t, dir)
	if g, err := w.TryServe("--listen", addressOf(t, lease)); err != nil { // there is no room for another lease
		require.ErrorContains(t, err, "no space left on device")
		t.Logf("a start without room: %s", err)
	} else {
		ran += untilRefused(t, w, lease)
		require.NoError(t, g.Stop(t))
	}
	free()
	serve(w)
	for _, o := range w.Operations() {
		require.Contains(t, []string{"ended", "not-started"}, o.State, "%+v", o)
	}
	status, text = once(t, w, w.Lease(transport), "")
	require.Zero(t, status, text)
	require.Equal(t, ran+2, w.Starts())
}

// TestFullDiskIsShown: the owner is told of a disk without room, and what the owner
// does meanwhile is on record.
func TestFullDiskIsShown(t *testing.T) { each(t, fullDiskIsShown) }

func fullDiskIsShown(t *testing.T, transport string) { //nolint:thelper // the test itself
	dir := small(t)
	w := rig.New(t, filepath.Join(dir, "owner"), "1m")
	g := serve(w)
	file := w.Lease(transport)
	status, text := once(t, w, file, "")
	require.Zero(t, status, text)
	const warning = "the disk of the ledger is full"
	require.NotContains(t, w.Lend(w.Owner, "status"), warning)

	free := fill(t, dir)
	untilRefused(t, w, file)
	shown := func() bool { return strings.Contains(w.Lend(w.Owner, "status"), warning) }
	require.True(t, rig.Until(rig.Patience, shown))
	require.Contains(t, w.Lend(w.Owner, "status", "--json"), `"full": true`)
	require.Equal(t, 1, strings.Count(g.Text(), warning), "%s", g.Text())
	w.Lend(w.Owner, "lockdown", "--why", "no room")
	w.Lend(w.Owner, "unlock")
	w.Lend(w.Owner, "lease", "revoke", "--holder", "caller")
	require.True(t, shown())

	free()
	require.True(t, rig.Until(rig.Patience, func() bool { return !shown() }))
	require.Contains(t, g.Text(), "the ledger has room again")
	type event struct {
		Index uint64
		Event string
		Facts map[string]string
	}
	var record struct{ Records []event }
	require.NoError(t, json.Unmarshal([]byte(w.Lend(w.Owner, "audit", "show", "--kind", "event", "--json")), &record))
	slices.SortFunc(record.Records, func(a, b event) int { return cmp.Compare(a.Index, b.Index) })
	var events []string
	for _, r := range record.Records {
		if slices.Contains([]string{"degraded", "recovered", "lockdown.on", "lockdown.off", "revocation.added"}, r.Event) {
			events = append(events, strings.TrimSpace(r.Event+" "+r.Facts["what"]))
		}
	}
	require.Equal(t, []string{"degraded the ledger", "lockdown.on", "lockdown.off", "revocation.added", "recovered the ledger"}, events)
	require.NoError(t, g.Stop(t))
	w.Verify()
}
