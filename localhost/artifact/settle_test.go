package artifact

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A change in the same tick of the file system's clock as the look would not show: so
// a file that was changed just now is hashed a tick later, and others at once.
func TestHashedATickAfterTheLastChange(t *testing.T) {
	t.Parallel()
	now := time.Now()
	identity{mtime: now.UnixNano(), ctime: now.UnixNano()}.settle()
	require.GreaterOrEqual(t, time.Since(now), tick)

	ahead := time.Now() // of a clock that was set back: waits, but not for a year
	identity{ctime: ahead.AddDate(1, 0, 0).UnixNano()}.settle()
	require.GreaterOrEqual(t, time.Since(ahead), tick)
	require.Less(t, time.Since(ahead), time.Minute)

	dir := filepath.Join(t.TempDir(), "tree")
	require.NoError(t, os.Mkdir(dir, 0o700))
	file := filepath.Join(dir, "f")
	require.NoError(t, os.WriteFile(file, []byte("x"), 0o400))
	require.NoError(t, os.Chmod(dir, 0o500))
	t.Cleanup(func() { _ = os.Chmod(dir, 0o700) })
	s, err := Open(dir, ConnectorLimits())
	require.NoError(t, err)
	opened := time.Now()
	first, ok := s.Identity("f")
	require.True(t, ok)
	require.GreaterOrEqual(t, opened.UnixNano()-first.Changed, int64(tick))
	_, ok = s.Identity(".")
	require.False(t, ok, "a directory is no file")
	_, ok = s.Identity("absent")
	require.False(t, ok)

	require.NoError(t, os.Chmod(file, 0o600)) // and back: the same bytes, another identity
	require.NoError(t, os.Chmod(file, 0o400))
	require.NoError(t, s.Verify())
	second, ok := s.Identity("f")
	require.True(t, ok)
	require.NotEqual(t, first, second)
	require.GreaterOrEqual(t, time.Now().UnixNano()-second.Changed, int64(tick))
}
