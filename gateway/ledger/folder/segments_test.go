package folder

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/gateway/ledger/segment"
)

// spec: LEDGER-28, LEDGER-30
func TestSegments(t *testing.T) {
	t.Parallel()
	d := Folder{Path: made(t)}
	for _, first := range []uint64{1000, 20} {
		there, err := d.AddSegment(first, []byte("frame"))
		require.NoError(t, err)
		require.True(t, there)
		require.NoError(t, d.WriteSnapshot(first, []byte("index")))
	}
	write(t, d.Path, "00000000000000000007.log.new")
	firsts, err := Segments(d.Path)
	require.NoError(t, err)
	require.Equal(t, []uint64{0, 20, 1000}, firsts)
	require.NoError(t, d.RemoveBefore(1000))
	firsts, err = Segments(d.Path)
	require.NoError(t, err)
	require.Equal(t, []uint64{1000}, firsts)
	_, err = ReadSnapshot(d.Path, 20)
	require.ErrorIs(t, err, os.ErrNotExist)
	b, err := ReadSnapshot(d.Path, 1000)
	require.NoError(t, err)
	require.Equal(t, "index", string(b))
	require.NoError(t, d.DropSegment(1000))
	require.Error(t, d.DropSegment(1000))

	require.NoError(t, os.Mkdir(filepath.Join(d.Path, "00000000000000000042.log.new"), 0o700))
	write(t, filepath.Join(d.Path, "00000000000000000042.log.new"), "in-the-way")
	there, err := d.AddSegment(42, nil)
	require.Error(t, err)
	require.False(t, there)
}

// spec: LEDGER-31
func TestClosedFile(t *testing.T) {
	t.Parallel()
	d := Folder{Path: made(t)}
	b, err := ReadClosed(d.Path, 0)
	require.NoError(t, err)
	require.Empty(t, b)
	_, err = ReadClosed(d.Path, 1)
	require.ErrorIs(t, err, segment.ErrCorrupt)
	require.NoError(t, d.AppendClosed(0, []byte("0123456789")))
	require.NoError(t, d.AppendClosed(4, []byte("abc")))
	b, err = ReadClosed(d.Path, 7)
	require.NoError(t, err)
	require.Equal(t, "0123abc", string(b))
	_, err = ReadClosed(d.Path, 8)
	require.ErrorIs(t, err, segment.ErrCorrupt)
	remove(t, d.Path, "00000000000000000000.log", macName, signerName, checkpointName)
	_, err = Survey(d.Path)
	require.ErrorIs(t, err, ErrLost)
}

// spec: LEDGER-33
func TestSetAside(t *testing.T) {
	t.Parallel()
	d := Folder{Path: made(t)}
	names, err := d.SetAside(testTime)
	require.NoError(t, err)
	require.Equal(t, macName+".20261130T120000.000000000.lost", names[len(names)-1], "the keys go last")
	aside, err := Aside(d.Path)
	require.NoError(t, err)
	require.ElementsMatch(t, names, aside)
	empty, err := Survey(d.Path)
	require.NoError(t, err)
	require.True(t, empty)
	names, err = d.SetAside(testTime)
	require.NoError(t, err)
	require.Empty(t, names)
}
