package removal

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// A CLI may nest directories deeper than the gateway may open files.
func TestDeep(t *testing.T) {
	const levels = 6 * maxOpen
	base := t.TempDir()
	outside := filepath.Join(base, "outside")
	require.NoError(t, os.WriteFile(outside, []byte("kept"), 0o600))
	require.NoError(t, os.Mkdir(filepath.Join(base, "parent"), 0o700))
	dir, err := os.OpenRoot(filepath.Join(base, "parent"))
	require.NoError(t, err)
	above := dir
	for i := range levels {
		require.NoError(t, dir.Mkdir("d", 0o700))
		next, err := dir.OpenRoot("d")
		require.NoError(t, err)
		require.NoError(t, next.WriteFile("f", nil, 0o400))
		require.NoError(t, next.Symlink(outside, "link"))
		require.NoError(t, next.Symlink("../../../..", "up"))
		if i%50 == 49 {
			require.NoError(t, above.Chmod("d", 0o000)) // dir itself, whose entries are all there
		}
		if above != dir {
			require.NoError(t, above.Close())
		}
		above, dir = dir, next
	}
	require.NoError(t, errors.Join(above.Close(), dir.Close()))

	most, stop, watched := 0, make(chan struct{}), make(chan struct{})
	if runtime.GOOS == "linux" {
		go func() {
			defer close(watched)
			for !closed(stop) {
				open, _ := os.ReadDir("/proc/self/fd")
				most = max(most, len(open))
			}
		}()
	} else {
		close(watched)
	}
	require.NoError(t, Tree(filepath.Join(base, "parent"), "d"))
	close(stop)
	<-watched
	require.Less(t, most, 3*maxOpen)
	require.NoDirExists(t, filepath.Join(base, "parent", "d"))
	left, err := os.ReadDir(filepath.Join(base, "parent"))
	require.NoError(t, err)
	require.Empty(t, left)
	kept, err := os.ReadFile(outside)
	require.NoError(t, err)
	require.Equal(t, "kept", string(kept))
}

// A directory with more entries than are read at once, some of them read-only.
func TestWide(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	for i := range removeBatch + 76 {
		require.NoError(t, os.MkdirAll(filepath.Join(parent, "d", strconv.Itoa(i)), 0o700))
	}
	for i := range 10 {
		require.NoError(t, os.WriteFile(filepath.Join(parent, "d", strconv.Itoa(i), "f"), nil, 0o400))
		require.NoError(t, os.Chmod(filepath.Join(parent, "d", strconv.Itoa(i)), 0o500))
	}
	require.NoError(t, Tree(parent, "d"))
	require.NoDirExists(t, filepath.Join(parent, "d"))
	require.NoError(t, Tree(parent, "d"), "gone is gone")
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
