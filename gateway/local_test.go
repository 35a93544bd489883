package gateway

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/lease"
	"github.com/lendcli/lend/localhost/route"
	"github.com/lendcli/lend/protocol"
)

func TestTryIsAdmittedLikeAPeer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	thief := newIdentity(t)
	cases := map[string]struct {
		holder identity
		start  *protocol.Start
		want   protocol.Code
	}{
		"another-holder": {thief, w.start(w.lease(), "print", "--size=1"), protocol.CodeDenied},
		"no-lease":       {w.agent, w.start([]byte("no lease"), "print"), protocol.CodeDenied},
		"expired": {w.agent, w.start(w.lease(func(l *lease.Lease) {
			l.IssuedAt = l.IssuedAt.Add(-time.Hour)
			l.NotBefore, l.NotAfter = l.IssuedAt, l.IssuedAt.Add(time.Minute)
		}), "print"), protocol.CodeLeaseExpired},
		"argument": {w.agent, w.start(w.lease(), "print", "--other=1"), protocol.CodeArgumentRejected},
		"command":  {w.agent, w.start(w.lease(), "erase"), protocol.CodeCommandUnknown},
	}
	for title, c := range cases {
		t.Run(title, func(t *testing.T) {
			var out bytes.Buffer
			_, err := w.node.Try(t.Context(), c.holder.id, c.start, nil, &out, &out)
			var refused *protocol.Refusal
			require.ErrorAs(t, err, &refused)
			require.Equal(t, c.want, refused.Code)
			require.Zero(t, out.Len())
			require.Zero(t, w.host.Starts.Load(), "nothing ran")
		})
	}
}

func TestTryRunsWithBothWindowsFull(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	want := pattern(9 << 20)
	var out bytes.Buffer
	exit, err := w.node.Try(t.Context(), w.agent.id, w.start(w.lease(), "cat"), bytes.NewReader(want), &out, io.Discard)
	require.NoError(t, err)
	require.Equal(t, protocol.CodeOK, exit.Code)
	require.Equal(t, uint64(len(want)), exit.Stdin)
	require.True(t, bytes.Equal(want, out.Bytes()))
}

func TestTryEndsAsThePeersRunWould(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	exit, err := w.node.Try(t.Context(), w.agent.id, w.start(w.lease(), "exit", "--code=7"), nil, io.Discard, io.Discard)
	require.NoError(t, err)
	require.Equal(t, 7, exit.Status)

	exit, err = w.node.Try(t.Context(), w.agent.id, w.start(w.lease(), "flood"), nil, failingWriter{}, io.Discard)
	require.NoError(t, err)
	require.Equal(t, "SIGPIPE", exit.Signal, "a reader that is gone closes the output")
}

func TestTryIsCancelledByItsContext(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	started := w.host.Starts.Load()
	go func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for w.host.Starts.Load() == started {
			<-tick.C
		}
		cancel()
	}()
	exit, err := w.node.Try(ctx, w.agent.id, w.start(w.lease(), "sleep"), nil, io.Discard, io.Discard)
	require.NoError(t, err)
	require.Equal(t, protocol.CodeCancelled, exit.Code)
}

// A cancel that comes at any moment on the way to the process ends it, or keeps it from
// running: none is lost between the admission and the list of what runs.
func TestTryIsCancelledBeforeItRuns(t *testing.T) {
	t.Parallel()
	var during atomic.Pointer[func()] // called on the way to the list
	w := newWorld(t, func(_ *world, c *Config) {
		now := c.Now
		c.Now = func() time.Time {
			if f := during.Load(); f != nil {
				(*f)()
			}
			return now()
		}
	})
	try := func(t *testing.T, ctx context.Context) {
		t.Helper()
		_, err := w.node.Try(ctx, w.agent.id, w.start(w.lease(), "sleep"), nil, io.Discard, io.Discard)
		var refused *protocol.Refusal
		require.ErrorAs(t, err, &refused)
		require.Equal(t, protocol.CodeCancelled, refused.Code)
		require.Zero(t, w.host.Running.Load())
	}
	t.Run("before-the-start-is-sent", func(t *testing.T) {
		for range 20 {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			try(t, ctx)
		}
		require.Zero(t, w.host.Starts.Load())
	})
	t.Run("before-it-is-listed", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		give := func() {
			cancel()
			<-time.After(20 * time.Millisecond) // so that who cancels has looked
		}
		during.Store(&give)
		try(t, ctx)
		during.Store(nil)
		require.Zero(t, w.host.Starts.Load())
	})
	t.Run("while-it-starts", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		w.host.OnStart(func(ctx context.Context, _ route.StartRequest) error {
			cancel()
			<-ctx.Done()
			return context.Cause(ctx)
		})
		_, err := w.node.Try(ctx, w.agent.id, w.start(w.lease(), "sleep"), nil, io.Discard, io.Discard)
		require.Error(t, err)
		require.Zero(t, w.host.Running.Load())
	})
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, errors.New("nobody reads") }

func TestRelayedLinksAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id, err := peer.Decode(w.agent.id.String())
	require.NoError(t, err)
	ours, theirs := net.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		limited := localConn{peer: id, stats: network.ConnStats{Stats: network.Stats{Limited: true}}}
		w.node.handler(w.node.run)(&localStream{pipe: theirs, conn: limited})
	}()
	f, err := protocol.NewReader(ours, protocol.Caller).Read()
	require.NoError(t, err)
	refused, ok := f.(*protocol.Refused)
	require.True(t, ok, "%T", f)
	require.Equal(t, protocol.CodeLimitedLink, refused.Code)
	require.NoError(t, ours.Close())
	<-done
	require.Zero(t, w.host.Starts.Load())
}
