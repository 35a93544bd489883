//go:build unix

package folder

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/gateway/ledger/segment"
)

// TestPipesAreNoFiles: a copy of a ledger may come from anywhere, and whoever looks
// at it must not wait for a pipe.
func TestPipesAreNoFiles(t *testing.T) {
	t.Parallel()
	dir := made(t)
	for name, read := range map[string]func() error{
		segmentName(5): func() error { _, err := Open(dir, 5, os.O_RDONLY); return err },
		checkpointName: func() error { _, err := ReadCheckpoint(dir); return err },
		closedName:     func() error { _, err := ReadClosed(dir, 1); return err },
		snapshotName(5): func() error {
			if _, err := ReadSnapshot(dir, 5); err == nil {
				return nil
			}
			return segment.ErrCorrupt // of a snapshot any error will do
		},
	} {
		path := filepath.Join(dir, name)
		if err := os.Remove(path); err != nil {
			require.ErrorIs(t, err, os.ErrNotExist)
		}
		require.NoError(t, syscall.Mkfifo(path, 0o600))
		got := make(chan error, 1)
		go func() { got <- read() }()
		select {
		case err := <-got:
			require.ErrorIs(t, err, segment.ErrCorrupt, name)
		case <-time.After(10 * time.Second):
			f, err := os.OpenFile(path, os.O_RDWR, 0) // lets it go
			require.Fail(t, "it waits for a pipe", "%s: %v", name, errors.Join(err, f.Close()))
		}
	}
}
