package checkup

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func goodFacts() Facts {
	yes, free := true, uint64(50<<30)
	return Facts{
		System: "linux", UID: 1000, Now: time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC), Synchronised: &yes, Free: &free,
		OpenFiles: 65536, ReceiveBuffer: 8 << 20, SendBuffer: 8 << 20, Cgroup: "/sys/fs/cgroup/lend.service",
	}
}

func TestMachineRows(t *testing.T) {
	t.Parallel()
	no := false
	room := func(n uint64) func(*Facts) { return func(f *Facts) { f.Free = &n } }
	for _, c := range []struct {
		what, name string
		change     func(*Facts)
		want       Status
		fix        string
	}{
		{"root", "user", func(f *Facts) { f.UID = 0 }, Warn, "a user of its own"},
		{"no users", "user", func(f *Facts) { f.UID = -1 }, Skip, ""},
		{"old clock", "clock", func(f *Facts) { f.Now = time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC) }, Fail, "set the clock"},
		{"own clock", "clock", func(f *Facts) { f.Synchronised = &no }, Warn, "timedatectl"},
		{"some clock", "clock", func(f *Facts) { f.Synchronised = nil }, Pass, ""},
		{"full disk", "disk-space", room(leastFree - 1), Fail, "make room"},
		{"nearly full disk", "disk-space", room(enoughFree - 1), Warn, "make room"},
		{"enough disk", "disk-space", room(enoughFree), Pass, ""},
		{"unknown disk", "disk-space", func(f *Facts) { f.Free = nil }, Skip, ""},
		{"no descriptors", "open-files", func(f *Facts) { f.OpenFiles = leastFiles - 1 }, Fail, "ulimit"},
		{"few descriptors", "open-files", func(f *Facts) { f.OpenFiles = enoughFiles - 1 }, Warn, "LimitNOFILE"},
		{"no limit", "open-files", func(f *Facts) { f.OpenFiles = 0 }, Skip, ""},
		{"small receive buffer", "udp-buffers", func(f *Facts) { f.ReceiveBuffer = 212992 }, Warn, "sysctl -w net.core.rmem_max=7340032"},
		{"small send buffer", "udp-buffers", func(f *Facts) { f.SendBuffer = 212992 }, Warn, "sysctl -w net.core.wmem_max=7340032"},
		{"unknown buffers", "udp-buffers", func(f *Facts) { f.SendBuffer = 0 }, Skip, ""},
		{"not delegated", "cgroup", func(f *Facts) { f.Cgroup = "" }, Skip, "Delegate=yes"},
		{"no cgroups", "cgroup", func(f *Facts) { f.System = "darwin" }, Skip, ""},
	} {
		f := goodFacts()
		c.change(&f)
		calls := 0
		for _, check := range Machine(func() Facts { calls++; return f }) {
			row := check.rows(t.Context())[0]
			if check.Name != c.name {
				require.Equal(t, Pass, row.Status, "%s: %s", c.what, check.Name)
				continue
			}
			require.Equal(t, c.want, row.Status, c.what)
			require.Contains(t, row.Fix, c.fix, c.what)
			require.NotEmpty(t, row.Detail, c.what)
			if c.fix == "" {
				require.Empty(t, row.Fix, c.what)
			}
		}
		require.Equal(t, 6, calls)
	}
}

// TestReadFacts asks the real system: what each system tells is there.
func TestReadFacts(t *testing.T) {
	t.Parallel()
	f := ReadFacts(filepath.Join(t.TempDir(), "not", "there", "yet"))
	require.Equal(t, runtime.GOOS, f.System)
	require.WithinDuration(t, time.Now(), f.Now, time.Minute)
	if runtime.GOOS != "linux" {
		return
	}
	require.Equal(t, os.Geteuid(), f.UID)
	require.NotNil(t, f.Free)
	require.NotZero(t, f.OpenFiles)
}

func TestNumberIn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "n"), []byte("212992\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "words"), []byte("many\n"), 0o600))
	require.EqualValues(t, 212992, numberIn(dir, "n"))
	require.Zero(t, numberIn(dir, "words"))
	require.Zero(t, numberIn(dir, "absent"))
}

func TestSize(t *testing.T) {
	t.Parallel()
	require.Equal(t, "0.5 KiB", size(512))
	require.Equal(t, "1.0 MiB", size(1<<20))
	require.Equal(t, "2.5 GiB", size(5<<29))
}
