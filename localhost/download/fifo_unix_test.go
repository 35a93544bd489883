//go:build unix

package download

import (
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFromFileWaitsForNoPipe(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := filepath.Join(dir, "pipe")
	require.NoError(t, syscall.Mkfifo(at, 0o600))
	_, err := open(t, filepath.Join(dir, "downloads")).Prepare(t.Context(), key(t), pinOf("x"), FromFile(at))
	require.ErrorContains(t, err, "not a regular file")
}
