package mcp

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
	o := newOutlet(&b)
	n, err := o.Write([]byte("one"))
	require.NoError(t, err)
	require.Equal(t, 3, n)
	require.Equal(t, "one", b.String())

	r, w := io.Pipe()
	o = newOutlet(w)
	var all sync.WaitGroup
	all.Go(func() { o.leave() })
	all.Go(func() { o.leave() })
	_, err = o.Write([]byte("nobody takes it"))
	require.ErrorIs(t, err, io.ErrClosedPipe)
	all.Wait()
	_, err = o.Write([]byte("nor this"))
	require.ErrorIs(t, err, io.ErrClosedPipe)
	require.NoError(t, r.Close()) // the goroutine ends

	r, w = io.Pipe()
	require.NoError(t, r.Close())
	_, err = newOutlet(w).Write([]byte("x"))
	require.ErrorIs(t, err, io.ErrClosedPipe, "the writer's own error")
}
