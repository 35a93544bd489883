package width

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func size(t *testing.T, f *os.File) int {
	t.Helper()
	raw, err := f.SyscallConn()
	require.NoError(t, err)
	n := 0
	require.NoError(t, raw.Control(func(fd uintptr) { n, err = unix.FcntlInt(fd, unix.F_GETPIPE_SZ, 0) }))
	require.NoError(t, err)
	return n
}

func newPipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = r.Close(), w.Close() })
	return r, w
}

func TestAPipeIsWidenedOnceItIsBulky(t *testing.T) {
	var p Pool
	r, w := newPipe(t)
	before := size(t, w)
	m := p.Meter(w)
	m.Moved(Bulky - 1)
	require.Equal(t, before, size(t, w))
	m.Moved(1)
	require.Equal(t, Width, size(t, r), "either end will do")
	require.EqualValues(t, 1, p.wide.Load())
	m.Moved(Bulky)
	require.EqualValues(t, 1, p.wide.Load())
	m.Close()
	m.Close()
	require.Zero(t, p.wide.Load())
	m.Moved(Bulky)
	require.Zero(t, p.wide.Load())
}

func TestWidePipesAreCounted(t *testing.T) {
	var p Pool
	p.wide.Store(Most)
	r, _ := newPipe(t)
	before := size(t, r)
	m := p.Meter(r)
	m.Moved(Bulky)
	require.Equal(t, before, size(t, r))
	require.EqualValues(t, Most, p.wide.Load())
	p.wide.Add(-1) // another one is closed
	m.Moved(Bulky)
	require.Equal(t, Width, size(t, r))
	require.EqualValues(t, Most, p.wide.Load())
}

func TestWhatIsNoPipeStaysAsItIs(t *testing.T) {
	f, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer func() { _ = f.Close() }()
	for _, end := range []any{nil, 1, f} {
		var p Pool
		m := p.Meter(end)
		m.Moved(Bulky)
		require.Zero(t, p.wide.Load())
		m.Close()
		require.Zero(t, p.wide.Load())
	}
}
