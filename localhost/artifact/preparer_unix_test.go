//go:build unix

package artifact

import (
	"net"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPreparerDirectoryKinds: a directory that holds a pipe or a socket is refused, and
// nobody waits for it.
func TestPreparerDirectoryKinds(t *testing.T) {
	t.Parallel()
	dir := writeDir(t, file{"a", "x", 0})
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "b"), 0o600))
	refused(t, dir, "named pipe")
	refused(t, filepath.Join(dir, "b"), "not a regular file")

	dir = writeDir(t, file{"a", "x", 0})
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", filepath.Join(dir, "s"))
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	refused(t, dir, "socket")
}
