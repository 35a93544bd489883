package stdio

import (
	"bytes"
	"io"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOutletLeavesWhoDoesNotRead(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	o := NewOutlet(&b)
	n, err := o.Write([]byte("one"))
	require.NoError(t, err)
	require.Equal(t, 3, n)
	require.Equal(t, "one", b.String())

	r, w := io.Pipe()
	o = NewOutlet(w)
	var all sync.WaitGroup
	all.Go(func() { o.Leave() })
	all.Go(func() { o.Leave() })
	_, err = o.Write([]byte("nobody takes it"))
	require.ErrorIs(t, err, io.ErrClosedPipe)
	all.Wait()
	_, err = o.Write([]byte("nor this"))
	require.ErrorIs(t, err, io.ErrClosedPipe)
	require.NoError(t, r.Close()) // the goroutine ends

	r, w = io.Pipe()
	require.NoError(t, r.Close())
	_, err = NewOutlet(w).Write([]byte("x"))
	require.ErrorIs(t, err, io.ErrClosedPipe, "the writer's own error")
}
