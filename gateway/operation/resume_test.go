package operation

import (
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/gateway/internal/fakehost"
	"github.com/lendcli/lend/localhost/route"
	"github.com/lendcli/lend/protocol"
)

// A caller cannot know whether its StdinEnd arrived, so it says it again.
// spec: ATTACH-3
func TestAttachSaysTheEndOfTheInputAgain(t *testing.T) {
	goOn := make(chan struct{})
	h := start(t, Config{}, true, func(c *fakehost.Child) route.Exit {
		copyAll(c.Stdout, c.Stdin)
		<-goOn
		return route.Exit{}
	})
	one := h.dial(first{stdin: true})
	require.NoError(t, one.send(0, []byte("all of it")))
	require.NoError(t, one.WriteFrame(&protocol.StdinEnd{Total: 9}))
	one.until(func() bool { return len(one.stdout) == 9 })
	require.NoError(t, one.conn.Close())
	require.Error(t, one.result())

	two := h.dial(first{attach: true, token: true, stdout: 9})
	two.until(func() bool { return two.accepted != nil })
	require.NoError(t, two.WriteFrame(&protocol.StdinEnd{Total: two.accepted.Stdin}))
	close(goOn)
	require.Equal(t, protocol.CodeOK, two.finish().Code)
}

// What it may not say is that there was another total.
func TestAttachSaysAnotherEndOfTheInput(t *testing.T) {
	h := start(t, Config{}, true, func(c *fakehost.Child) route.Exit {
		copyAll(c.Stdout, c.Stdin)
		<-c.Terminated
		return route.Exit{}
	})
	one := h.dial(first{stdin: true})
	require.NoError(t, one.send(0, []byte("all of it")))
	require.NoError(t, one.WriteFrame(&protocol.StdinEnd{Total: 9}))
	one.until(func() bool { return len(one.stdout) == 9 })
	require.NoError(t, one.conn.Close())
	require.Error(t, one.result())

	two := h.dial(first{attach: true, token: true, stdout: 9})
	two.until(func() bool { return two.accepted != nil })
	require.NoError(t, two.send(9, []byte("more")))
	require.ErrorIs(t, two.result(), errUnwanted)
}

// An acknowledgement that was lost with a stream comes again on the next, or a
// caller whose window is full would wait for ever. spec: ATTACH-4
func TestAttachAcknowledgesAgain(t *testing.T) {
	h := start(t, Config{}, true, func(c *fakehost.Child) route.Exit {
		_, _ = io.Copy(io.Discard, c.Stdin)
		return route.Exit{}
	})
	const size = ackEvery + 1000
	one := h.dial(first{stdin: true})
	require.NoError(t, one.send(0, pattern(size)))
	one.until(func() bool { return len(one.taken) > 0 })
	require.NoError(t, one.conn.Close())
	require.Error(t, one.result())

	two := h.dial(first{attach: true, token: true})
	two.until(func() bool { return len(two.taken) > 0 })
	require.GreaterOrEqual(t, <-two.taken, uint64(ackEvery))
	require.NoError(t, two.WriteFrame(&protocol.StdinEnd{Total: two.accepted.Stdin}))
	require.Equal(t, protocol.CodeOK, two.finish().Code)
}
