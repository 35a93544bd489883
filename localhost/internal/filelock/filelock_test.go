package filelock

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLocks(t *testing.T) {
	t.Parallel()
	p := filepath.Join(t.TempDir(), "lock")
	a, err := Try(p)
	require.NoError(t, err)
	_, err = Try(p)
	require.ErrorIs(t, err, ErrHeld, "locks of one process exclude each other")
	_, err = TryShared(p)
	require.ErrorIs(t, err, ErrHeld)
	require.NoError(t, a.Close())
	require.NoError(t, a.Close(), "Close is idempotent")

	b, err := TryShared(p)
	require.NoError(t, err)
	c, err := TryShared(p)
	require.NoError(t, err)
	_, err = Try(p)
	require.ErrorIs(t, err, ErrHeld)
	require.NoError(t, b.Close())
	require.NoError(t, c.Close())
	_, err = TryShared(filepath.Join(p, "below-a-file"))
	require.Error(t, err)
}

func TestExclusiveWaits(t *testing.T) {
	t.Parallel()
	p := filepath.Join(t.TempDir(), "lock")
	a, err := Exclusive(t.Context(), p)
	require.NoError(t, err)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = Exclusive(ctx, p)
	require.ErrorIs(t, err, context.Canceled)

	got := make(chan error, 1)
	go func() {
		b, err := Exclusive(t.Context(), p)
		if err == nil {
			err = b.Close()
		}
		got <- err
	}()
	require.NoError(t, a.Close())
	require.NoError(t, <-got)
}
