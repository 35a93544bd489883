package uninstall

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lendcli/lend/localhost/install"
	"github.com/lendcli/lend/protocol/name"
)

// fill takes what is free of the file system of dir.
func fill(t *testing.T, dir string) {
	t.Helper()
	var stat unix.Statfs_t
	require.NoError(t, unix.Statfs(dir, &stat))
	f, err := os.OpenFile(filepath.Join(dir, "filler"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	require.NoError(t, err)
	_, err = f.Write(bytes.Repeat([]byte("x"), int(stat.Bavail)*int(stat.Bsize)))
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

// Uninstall on a disk that is full at each of its steps: until the removal could be
// written down, the Connector is whole, what runs of it is not ended and it can start;
// afterwards the removal holds and goes on when there is room, which a purge does not
// need.
func TestUninstallFullDiskAtEveryStep(t *testing.T) {
	if os.Getenv("LEND_TEST_FULL") != "1" {
		t.Skip("needs LEND_TEST_FULL=1, and the right to mount a small tmpfs")
	}
	for _, purge := range []bool{false, true} {
		steps := []string{"begin", "written", "retired", "withdrawn", "removed 1.0.0", "removed 2.0.0"}
		how := "keep "
		if purge {
			how = "purge "
			steps = append(steps, "purged default", "purged work")
		}
		for _, step := range steps {
			t.Run(how+step, func(t *testing.T) {
				dir := t.TempDir()
				require.NoError(t, unix.Mount("lend-test", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=2m,mode=0700"))
				t.Cleanup(func() { require.NoError(t, unix.Unmount(dir, unix.MNT_DETACH)) })
				r := newRigOf(t, dir, "/bin/true")
				require.NoError(t, os.RemoveAll(filepath.Join(dir, "source")))
				c := r.config()
				full := false
				c.at = func(s string) {
					if full = full || s == step; full {
						fill(t, dir) // somebody takes at once what the removal gives back
					}
				}
				ended := false
				c.Retire = func(context.Context, name.ConnectorKey) error { ended = true; return nil }
				c.Withdraw = func(context.Context, name.ConnectorKey) error { return nil }
				err := Remove(t.Context(), c, Request{Connector: r.tool, Purge: purge})
				c.at = nil
				i := r.intent(t, r.tool)
				if purge && step != "begin" { // it takes away, and writes nothing more
					require.NoError(t, err)
					require.Nil(t, i.Removing)
					require.Empty(t, r.versions(t, r.tool))
					require.Empty(t, r.accounts(t, r.tool))
					require.True(t, r.whole(t, r.other, "1.0.0"))
					return
				}
				require.ErrorIs(t, err, unix.ENOSPC)
				if step == "begin" {
					require.Nil(t, i.Removing)
					require.False(t, ended, "what runs goes on")
					require.True(t, r.whole(t, r.tool, "1.0.0", "2.0.0"))
					other, err := install.Open(install.Config{Dir: filepath.Join(dir, "store")}) // another process, on the full disk
					require.NoError(t, err)
					all, damaged, err := other.Releases()
					require.NoError(t, err)
					require.Empty(t, damaged)
					require.Len(t, all, 3)
					for _, release := range all {
						l, err := other.Launch(release)
						require.NoError(t, err)
						require.NoError(t, l.Verify())
						require.NoError(t, l.Close())
					}
					require.NoError(t, other.Close())
				} else {
					require.True(t, i.Removes(parsed(t, name.ParseVersion, "1.0.0")), "it holds")
					_, err = Resume(t.Context(), c)
					require.ErrorIs(t, err, unix.ENOSPC, "and cannot be ended yet")
					require.NotNil(t, r.intent(t, r.tool).Removing)
				}
				require.True(t, r.whole(t, r.other, "1.0.0"))

				require.NoError(t, os.Remove(filepath.Join(dir, "filler")))
				resumed, err := Resume(t.Context(), c)
				require.NoError(t, err)
				if step == "begin" {
					require.Empty(t, resumed)
					require.NoError(t, Remove(t.Context(), c, Request{Connector: r.tool, Purge: purge}))
				}
				require.Empty(t, r.versions(t, r.tool))
				require.Nil(t, r.intent(t, r.tool).Removing)
				require.Equal(t, !purge, r.accounts(t, r.tool) == "default work")
				require.True(t, r.whole(t, r.other, "1.0.0"))
			})
		}
	}
}
