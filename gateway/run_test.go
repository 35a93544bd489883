package gateway

import (
	"bytes"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/protocol"
)

func TestOutputIsExact(t *testing.T) {
	t.Parallel()
	for _, transport := range transports() {
		t.Run(transport, func(t *testing.T) {
			w := newWorld(t)
			d, l := w.dial(w.agent, transport), w.lease()
			for _, n := range []int{0, 1, 17, 65535, 65536, 65537, 3 << 20} {
				r := d.run(w.start(l, "print", fmt.Sprintf("--size=%d", n)))
				exit := r.finish()
				require.Equal(t, protocol.CodeOK, exit.Code)
				require.False(t, r.accepted.Attached)
				require.Len(t, r.accepted.Token, protocol.TokenSize)
				require.Equal(t, uint64(n), exit.Stdout)
				require.True(t, bytes.Equal(pattern(n), r.stdout), "%d bytes", n)
			}
		})
	}
}

func TestInput(t *testing.T) {
	t.Parallel()
	for _, transport := range transports() {
		t.Run(transport, func(t *testing.T) {
			w := newWorld(t)
			d, l := w.dial(w.agent, transport), w.lease()
			for _, n := range []int{0, 1, 70_000, 5 << 20} {
				r := d.run(w.start(l, "cat"))
				want := pattern(n)
				sent := make(chan error, 1)
				go func() { sent <- r.input(want) }()
				exit := r.finish()
				require.NoError(t, <-sent)
				require.Equal(t, protocol.CodeOK, exit.Code)
				require.Equal(t, uint64(n), exit.Stdin)
				require.True(t, bytes.Equal(want, r.stdout))
			}
		})
	}
}

func TestExitStatus(t *testing.T) {
	t.Parallel()
	for _, transport := range transports() {
		t.Run(transport, func(t *testing.T) {
			w := newWorld(t)
			d, l := w.dial(w.agent, transport), w.lease()
			for _, code := range []int{0, 1, 7, 255} {
				exit := d.run(w.start(l, "exit", fmt.Sprintf("--code=%d", code))).finish()
				require.Equal(t, protocol.CodeOK, exit.Code)
				require.Equal(t, code, exit.Status)
				require.Empty(t, exit.Signal)
			}
			exit := d.run(w.start(l, "exit", "--code=999")).finish()
			require.Equal(t, "SIGSEGV", exit.Signal)
			require.True(t, exit.Core)
		})
	}
}

func TestSlowReader(t *testing.T) {
	t.Parallel()
	for _, transport := range transports() {
		t.Run(transport, func(t *testing.T) {
			w := newWorld(t)
			const size = 4 << 20
			r := w.dial(w.agent, transport).run(w.start(w.lease(), "print", fmt.Sprintf("--size=%d", size)))
			pause := time.NewTicker(10 * time.Millisecond)
			defer pause.Stop()
			for r.exit == nil {
				<-pause.C
				require.NoError(t, r.next())
			}
			require.False(t, r.exit.Forced)
			require.True(t, bytes.Equal(pattern(size), r.stdout))
			_ = r.WriteFrame(&protocol.ExitAck{})
		})
	}
}

func TestReaderThatHasEnough(t *testing.T) {
	t.Parallel()
	for _, transport := range transports() {
		t.Run(transport, func(t *testing.T) {
			w := newWorld(t)
			r := w.dial(w.agent, transport).run(w.start(w.lease(), "flood"))
			r.until(func() bool { return len(r.stdout) > 0 })
			require.NoError(t, r.WriteFrame(&protocol.OutputClosed{Stream: protocol.Stdout}))
			require.Equal(t, "SIGPIPE", r.finish().Signal)
		})
	}
}

func TestChildThatReadsNothing(t *testing.T) {
	t.Parallel()
	for _, transport := range transports() {
		t.Run(transport, func(t *testing.T) {
			w := newWorld(t)
			d := w.dial(w.agent, transport)
			s := w.start(w.lease(), "cat")
			s.Command = w.start(nil, "close").Command
			r := d.run(s)
			r.answer()
			require.NoError(t, r.WriteFrame(&protocol.Data{Payload: []byte("nobody reads this")}))
			r.until(func() bool { return r.closed })
			began := time.Now()
			c := d.stream(protocol.ControlID)
			require.NoError(t, protocol.WriteControlRequest(c, &protocol.CancelRequest{OperationKey: w.key(s)}))
			reply, err := protocol.ReadControlReply(c)
			require.NoError(t, err)
			require.Equal(t, &protocol.CancelReply{State: protocol.OperationRunning}, reply)
			r.until(func() bool { return r.exit != nil })
			require.Less(t, time.Since(began), time.Second)
			require.Equal(t, protocol.CodeCancelled, r.exit.Code)
		})
	}
}

func TestLimitsOfARun(t *testing.T) {
	t.Parallel()
	for _, transport := range transports() {
		t.Run(transport, func(t *testing.T) {
			w := newWorld(t, withPolicy(basicPolicy+"    limits: {stdout: 100KiB, run: 1s}\n"))
			d, l := w.dial(w.agent, transport), w.lease()
			r := d.run(w.start(l, "flood"))
			require.Equal(t, protocol.CodeOutputLimit, r.finish().Code)
			require.Len(t, r.stdout, 100<<10)
			require.Equal(t, protocol.CodeTimeout, d.run(w.start(l, "sleep")).finish().Code)

			text := d.run(w.start(l, "text"))
			require.NoError(t, text.WriteFrame(&protocol.Data{Payload: []byte{0xff}}))
			require.Equal(t, protocol.CodeInputRejected, text.finish().Code)
			long := d.run(w.start(l, "text"))
			require.NoError(t, long.WriteFrame(&protocol.Data{Payload: make([]byte, 1025)}))
			require.Equal(t, protocol.CodeInputLimit, long.finish().Code)
		})
	}
}

func TestExpiryAndRevocationEndWhatRuns(t *testing.T) {
	t.Parallel()
	for _, transport := range transports() {
		t.Run(transport, func(t *testing.T) {
			w := newWorld(t)
			r := w.dial(w.agent, transport).run(w.start(w.lease(), "sleep"))
			r.answer()
			w.clock.advance(time.Hour)
			require.Equal(t, protocol.CodeLeaseExpired, r.finish().Code)

			r = w.dial(w.agent, transport).run(w.start(w.lease(), "sleep"))
			r.answer()
			w.revokeAll()
			began := time.Now()
			require.Equal(t, protocol.CodeLeaseRevoked, r.finish().Code)
			require.Less(t, time.Since(began), time.Second)
		})
	}
}

func TestPolicyThatNarrowsEndsWhatRuns(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.dial(w.agent, "tcp")
	l := w.lease()
	asleep, other := d.run(w.start(l, "sleep")), d.run(w.start(l, "flood"))
	asleep.answer()
	other.answer()
	w.node.Reload(w.parse(bytesReplace(basicPolicy, "sleep: {}, ", "")))
	require.Equal(t, protocol.CodePolicyChanged, asleep.finish().Code)
	d.run(w.start(l, "sleep")).wantRefused(protocol.CodeCommandUnknown)
	require.NotEmpty(t, w.node.Status().Operations, "what is still allowed runs on")
	w.node.Reload(nil)
	require.Equal(t, protocol.CodePolicyChanged, other.lastCode())
}

func TestShutdownGivesAnExit(t *testing.T) {
	t.Parallel()
	for _, transport := range transports() {
		t.Run(transport, func(t *testing.T) {
			w := newWorld(t)
			r := w.dial(w.agent, transport).run(w.start(w.lease(), "sleep"))
			r.answer()
			closed := make(chan error, 1)
			go func() { closed <- w.node.Close() }()
			r.until(func() bool { return r.exit != nil })
			require.Equal(t, protocol.CodeShuttingDown, r.exit.Code)
			require.NoError(t, r.WriteFrame(&protocol.ExitAck{}))
			require.NoError(t, <-closed)
		})
	}
}

func TestAttachOverAnotherTransport(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const size = 6 << 20
	s := w.start(w.lease(), "print", fmt.Sprintf("--size=%d", size))
	one := w.dial(w.agent, "tcp")
	r := one.run(s)
	r.until(func() bool { return len(r.stdout) > 100_000 })
	token, have := r.accepted.Token, r.stdout
	require.NoError(t, one.host.Close())
	again := w.dial(w.agent, "quic").run(w.attach(s, token, uint64(len(have))))
	exit := again.finish()
	require.Equal(t, protocol.CodeOK, exit.Code)
	require.True(t, again.accepted.Attached)
	require.True(t, bytes.Equal(pattern(size), append(have, again.stdout...)))
}

// spec: ACCEPT-1
func TestSameOperationAgain(t *testing.T) {
	t.Parallel()
	for _, transport := range transports() {
		t.Run(transport, func(t *testing.T) {
			w := newWorld(t)
			d, l := w.dial(w.agent, transport), w.lease()
			s := w.start(l, "print", "--size=10")
			d.run(s).finish()
			again := d.run(s)
			exit := again.finish()
			require.Equal(t, uint64(10), exit.Stdout)
			require.Equal(t, uint64(10), again.accepted.Stdout, "the output is gone, and that is said")
			require.Empty(t, again.stdout)
			require.Equal(t, int64(1), w.host.Starts.Load())

			renewed := *s
			renewed.Lease = [][]byte{w.lease()}
			d.run(&renewed).finish()

			other := *s
			other.Arguments = []string{"--size=11"}
			d.run(&other).wantRefused(protocol.CodeOperationConflict)
			require.Equal(t, int64(1), w.host.Starts.Load())
			d.run(w.attach(s, nil, 3)).finish()
		})
	}
}

func TestParallelStartsMakeOneProcess(t *testing.T) {
	t.Parallel()
	for _, transport := range transports() {
		t.Run(transport, func(t *testing.T) {
			w := newWorld(t)
			d := w.dial(w.agent, transport)
			s := w.start(w.lease(), "sleep")
			var streams sync.WaitGroup
			for range 50 {
				r := d.run(s)
				streams.Go(func() {
					for r.exit == nil && r.next() == nil {
					}
					_ = r.WriteFrame(&protocol.ExitAck{})
					_ = r.stream.Close()
				})
			}
			eventually(t, func() bool { return w.host.Starts.Load() == 1 })
			w.cancel(d, s)
			streams.Wait()
			require.Equal(t, int64(1), w.host.Starts.Load())
		})
	}
}
