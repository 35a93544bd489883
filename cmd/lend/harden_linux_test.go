package main

import (
	"bytes"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// What runs commands (serve, connector try, connector login) holds keys and the
// owner's environment, which a process of the same user could read.
func TestWhatRunsCommandsIsClosedToThem(t *testing.T) {
	dumpable := func() int {
		n, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
		require.NoError(t, err)
		return n
	}
	before := dumpable()
	require.NoError(t, unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0))
	t.Cleanup(func() { require.NoError(t, unix.Prctl(unix.PR_SET_DUMPABLE, uintptr(before), 0, 0, 0)) })

	dir := t.TempDir()
	code, _, errs := lend(t, dir, "init")
	require.Zero(t, code, "%s", errs)
	a := newApp(nil, nil, &bytes.Buffer{}, &bytes.Buffer{})
	a.dir = dir
	p, err := a.paths()
	require.NoError(t, err)
	side, err := a.openOwnersSide(p, nil, zerolog.Nop())
	require.NoError(t, err)
	require.Zero(t, dumpable())
	require.NoError(t, side.close())
}
