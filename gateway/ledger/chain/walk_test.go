package chain

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/gateway/ledger/folder"
	"github.com/lendcli/lend/gateway/ledger/record"
	"github.com/lendcli/lend/gateway/ledger/segment"
)

// log makes a ledger of one segment with n events.
func log(t *testing.T, n int) (dir, file string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "ledger")
	require.NoError(t, os.Mkdir(dir, 0o700))
	var more [][]byte
	for i := range n {
		more = append(more, record.Event{Name: strconv.Itoa(i)}.Encode(time.UnixMilli(1)))
	}
	require.NoError(t, folder.Folder{Path: dir}.Create(time.UnixMilli(1), more...))
	return dir, filepath.Join(dir, "00000000000000000000.log")
}

func TestWalkFrom(t *testing.T) {
	t.Parallel()
	dir, file := log(t, 5)
	enough := errors.New("enough")
	var seen []uint64
	until := func(last uint64) func(segment.Frame) error {
		return func(f segment.Frame) error {
			if f.Index > last {
				return enough
			}
			seen = append(seen, f.Index)
			return nil
		}
	}
	at, _, err := WalkFrom(dir, Cursor{}, until(2))
	require.ErrorIs(t, err, enough)
	require.Equal(t, uint64(3), at.Next, "behind the last that was taken")
	at, torn, err := WalkFrom(dir, at, until(9))
	require.NoError(t, err)
	require.Zero(t, torn)
	require.Equal(t, []uint64{0, 1, 2, 3, 4, 5}, seen)
	again, _, err := WalkFrom(dir, at, until(9))
	require.NoError(t, err)
	require.Equal(t, at, again, "nothing more yet")

	// A record that is half there is waited for; then the walk goes on with it.
	frame := segment.AppendFrame(nil, record.Event{Name: "late"}.Encode(time.UnixMilli(2)), 6, 0)
	whole, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, append(whole, frame[:len(frame)-3]...), 0o600))
	again, torn, err = WalkFrom(dir, at, until(9))
	require.NoError(t, err)
	require.Equal(t, int64(len(frame)-3), torn)
	require.Equal(t, at, again)
	require.NoError(t, os.WriteFile(file, append(whole, frame...), 0o600))
	again, _, err = WalkFrom(dir, at, until(9))
	require.NoError(t, err)
	require.Equal(t, uint64(7), again.Next)
	require.Equal(t, []uint64{0, 1, 2, 3, 4, 5, 6}, seen)

	require.NoError(t, os.WriteFile(file, whole[:len(whole)-1], 0o600))
	_, _, err = WalkFrom(dir, again, until(9))
	require.ErrorIs(t, err, segment.ErrCorrupt)
	require.ErrorContains(t, err, "record 7 at")
	_, _, err = WalkFrom(dir, Begin(3), until(9))
	require.ErrorIs(t, err, os.ErrNotExist, "no segment begins there")
	_, _, err = WalkFrom(t.TempDir(), Cursor{}, until(9))
	require.ErrorIs(t, err, os.ErrNotExist)
	_, _, err = WalkFrom(filepath.Join(dir, "none"), Cursor{}, until(9))
	require.ErrorIs(t, err, os.ErrNotExist)
}
