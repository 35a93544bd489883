package client

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/protocol"
)

// prints sends n bytes of output, and the end.
func prints(n uint64) func(*served) {
	return func(v *served) {
		v.send(acceptedFrame())
		for at := uint64(0); at < n; at += 32 << 10 {
			v.send(stdout(at, strings.Repeat("x", 32<<10)))
		}
		if v.send(&protocol.Exit{Stdout: n}) {
			v.acked()
		}
	}
}

// A reader that takes nothing holds up its own operation and no other on the same
// connection. spec: FLOW-7
func TestNeighboursOfAStoppedReader(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) { //nolint:thelper // the test itself
		const size = 1 << 20 // what a gateway sends before anything is acknowledged
		c := f.dial(t)
		var outs []io.Reader
		var stopped []*Cmd
		for range 4 {
			f.then(prints(size))
			cmd := list(c)
			out, err := cmd.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, cmd.Start())
			outs, stopped = append(outs, out), append(stopped, cmd)
		}
		time.Sleep(200 * time.Millisecond) // until the streams are full
		done := make(chan error, 1)
		f.then(prints(size))
		go func() { done <- list(c).Run() }()
		select {
		case err := <-done:
			require.NoError(t, err)
		case <-time.After(5 * time.Second):
			t.Error("it waits for its neighbours' readers")
		}
		for i, out := range outs {
			n, err := io.Copy(io.Discard, out)
			require.NoError(t, err)
			require.EqualValues(t, size, n)
			require.NoError(t, stopped[i].Wait())
		}
	})
}
