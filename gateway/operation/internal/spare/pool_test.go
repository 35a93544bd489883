//go:build unix

package spare

import (
	"bytes"
	"io"
	"os"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/protocol"
)

func TestReadLeavesRoomForAHeader(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer func() { _, _ = r.Close(), w.Close() }()
	var s Pool
	for _, from := range []io.Reader{strings.NewReader("abc"), r} {
		if from == r {
			_, err = w.WriteString("abc")
			require.NoError(t, err)
		}
		p, n, err := s.Read(from)
		require.NoError(t, err)
		require.Len(t, *p, Size)
		require.Equal(t, "abc", string((*p)[protocol.DataHeaderMax:][:n]))
		s.Put(p)
	}
	require.NoError(t, w.Close())
	for _, from := range []io.Reader{&bytes.Buffer{}, r} {
		p, n, err := s.Read(from)
		require.Equal(t, io.EOF, err)
		require.Nil(t, p)
		require.Zero(t, n)
	}
	_, _, err = s.Read(iotest.ErrReader(os.ErrPermission))
	require.ErrorIs(t, err, os.ErrPermission)
}

// A silent pipe holds no buffer while it is read.
func TestWhoIsSilentHoldsNoBuffer(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer func() { _, _ = r.Close(), w.Close() }()
	var s Pool
	require.NoError(t, r.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
	p, n, err := s.Read(r)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.Nil(t, p)
	require.Zero(t, n)
	require.NoError(t, r.Close())
	_, _, err = s.Read(r)
	require.Error(t, err)
}
