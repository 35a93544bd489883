package operation

import (
	"bytes"
	"context"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/gateway/internal/fakehost"
	"github.com/lendcli/lend/localhost/route"
	"github.com/lendcli/lend/protocol"
)

func TestOutputIsExact(t *testing.T) {
	for _, n := range []int{0, 1, 65479, 65480, 65481, 65535, 65536, 65537, 5 << 20} {
		h := start(t, Config{}, false, printer(n))
		c := h.dial(first{})
		exit := c.finish()
		require.Equal(t, protocol.CodeOK, exit.Code)
		require.False(t, exit.Forced)
		require.Equal(t, uint64(n), exit.Stdout)
		require.True(t, bytes.Equal(pattern(n), c.stdout), "%d bytes", n)
		h.wait(h.op.Done())
	}
}

func TestExitStatus(t *testing.T) {
	for label, exit := range map[string]route.Exit{
		"zero": {}, "one": {Code: 1}, "last": {Code: 255},
		"signal": {Signal: "SIGSEGV", Core: true}, "signal-with-code": {Signal: "SIGKILL", Code: 137},
	} {
		t.Run(label, func(t *testing.T) {
			h := start(t, Config{}, false, func(c *fakehost.Child) route.Exit {
				_, _ = c.Stderr.WriteString("words")
				return exit
			})
			c := h.dial(first{})
			got := c.finish()
			require.Equal(t, protocol.CodeOK, got.Code)
			require.Equal(t, exit.Signal, got.Signal)
			require.Equal(t, exit.Core, got.Core)
			if exit.Signal == "" {
				require.Equal(t, exit.Code, got.Status)
			}
			require.Equal(t, "words", string(c.stderr))
		})
	}
}

func TestInputReachesTheChild(t *testing.T) {
	const size = 20 << 20 // more than any window
	h := start(t, Config{}, true, func(c *fakehost.Child) route.Exit {
		copyAll(c.Stdout, c.Stdin)
		return route.Exit{}
	})
	c := h.dial(first{stdin: true})
	want := pattern(size)
	sent := make(chan error, 1)
	go func() { sent <- c.stream(want) }()
	exit := c.finish()
	require.NoError(t, <-sent)
	require.Equal(t, protocol.CodeOK, exit.Code)
	require.Equal(t, uint64(size), exit.Stdin)
	require.True(t, bytes.Equal(want, c.stdout))
}

func TestChildThatClosesItsInput(t *testing.T) {
	release := make(chan struct{})
	h := start(t, Config{}, true, func(c *fakehost.Child) route.Exit {
		_ = c.Stdin.Close()
		<-release
		return route.Exit{Code: 3}
	})
	c := h.dial(first{stdin: true})
	c.until(func() bool { return c.accepted != nil })
	var offset uint64
	for !c.closed {
		require.NoError(t, c.send(offset, []byte("more")))
		offset += 4
		if offset > 4 { // the first ones meet an open or a closed pipe
			c.until(func() bool { return c.closed })
		}
	}
	close(release)
	exit := c.finish()
	require.Equal(t, 3, exit.Status)
	require.Zero(t, exit.Stdin)
}

func TestCancelActsWhileTheChildIgnoresItsInput(t *testing.T) {
	h := start(t, Config{}, true, sleeper)
	c := h.dial(first{stdin: true})
	go func() { _ = c.send(0, make([]byte, 64<<20)) }()
	c.until(func() bool { return c.accepted != nil })
	began := time.Now()
	h.op.Cancel(CauseCaller)
	for c.exit == nil {
		_, err := c.next()
		require.NoError(t, err)
	}
	require.Less(t, time.Since(began), time.Second)
	require.Equal(t, protocol.CodeCancelled, c.exit.Code)
	require.Equal(t, "SIGTERM", c.exit.Signal)
}

func TestCloseOfAnOutputEndsTheWriter(t *testing.T) {
	h := start(t, Config{}, false, func(c *fakehost.Child) route.Exit {
		for {
			if _, err := c.Stdout.Write(make([]byte, 4096)); err != nil {
				return route.Exit{Signal: "SIGPIPE"}
			}
		}
	})
	c := h.dial(first{})
	c.until(func() bool { return len(c.stdout) > 0 })
	require.NoError(t, c.WriteFrame(&protocol.OutputClosed{Stream: protocol.Stdout}))
	exit := c.finish()
	require.Equal(t, protocol.CodeOK, exit.Code)
	require.Equal(t, "SIGPIPE", exit.Signal)
}

// spec: END-5
func TestCauses(t *testing.T) {
	for c := CauseCaller; c <= CauseInternal; c++ {
		require.True(t, c.Code().CanEnd(), "%v", c)
		h := start(t, Config{}, false, sleeper)
		caller := h.dial(first{})
		caller.until(func() bool { return caller.accepted != nil })
		h.op.Cancel(c)
		h.op.Cancel(CauseShutdown) // the first counts
		require.Equal(t, c.Code(), caller.finish().Code)
	}
}

func TestStubbornChildIsKilled(t *testing.T) {
	h := start(t, Config{Grace: 20 * time.Millisecond}, false, func(c *fakehost.Child) route.Exit {
		<-c.Killed
		return route.Exit{Signal: "SIGKILL"}
	})
	c := h.dial(first{})
	h.op.Cancel(CauseRevoked)
	exit := c.finish()
	require.Equal(t, protocol.CodeLeaseRevoked, exit.Code)
	require.Equal(t, "SIGKILL", exit.Signal)
}

func TestHurryShortensTheGrace(t *testing.T) {
	h := start(t, Config{Grace: time.Hour}, false, func(c *fakehost.Child) route.Exit {
		<-c.Killed
		return route.Exit{Signal: "SIGKILL"}
	})
	c := h.dial(first{})
	h.op.Cancel(CauseCaller)
	h.op.Hurry(time.Millisecond)
	require.Equal(t, "SIGKILL", c.finish().Signal)
}

// TestHurryEndsTheTree: a grandchild that holds an output, and a caller that reads
// nothing, do not keep what may not go on alive until the drain is over.
func TestHurryEndsTheTree(t *testing.T) {
	for what, program := range map[string]fakehost.Program{
		"that has lost its root to the stop": func(c *fakehost.Child) route.Exit {
			c.Keep(c.Stdout)
			<-c.Terminated
			return route.Exit{Signal: "SIGTERM"}
		},
		"whose root had ended by itself": func(c *fakehost.Child) route.Exit {
			c.Keep(c.Stdout)
			return route.Exit{}
		},
		"whose caller reads nothing": func(c *fakehost.Child) route.Exit {
			c.Keep(c.Stdout)
			go func() {
				for {
					if _, err := c.Stdout.Write(make([]byte, 64<<10)); err != nil {
						return
					}
				}
			}()
			<-c.Terminated
			return route.Exit{Signal: "SIGTERM"}
		},
	} {
		t.Run(what, func(t *testing.T) {
			h := start(t, Config{Grace: time.Hour, Drain: time.Hour}, false, program)
			c := h.dial(first{})
			c.until(func() bool { return c.accepted != nil })
			h.op.Cancel(CauseRevoked)
			h.op.Hurry(time.Millisecond)
			require.Eventually(t, func() bool { _, ended := h.op.Ended(); return ended }, patience, time.Millisecond)
		})
	}
}

func TestDeadline(t *testing.T) {
	limits := unlimited()
	limits.Run = 30 * time.Millisecond
	h := start(t, Config{Limits: limits}, false, sleeper)
	require.Equal(t, protocol.CodeTimeout, h.dial(first{}).finish().Code)
}

func TestLimits(t *testing.T) {
	spill := func(c *fakehost.Child) route.Exit {
		_, _ = c.Stdout.Write(pattern(100))
		_, _ = c.Stderr.Write(pattern(100))
		return route.Exit{} // the child's end does not hide the loss
	}
	limits := unlimited()
	limits.Stdout = 99
	h := start(t, Config{Limits: limits}, false, spill)
	c := h.dial(first{})
	exit := c.finish()
	require.Equal(t, protocol.CodeOutputLimit, exit.Code)
	require.Equal(t, pattern(99), c.stdout)

	limits = unlimited()
	limits.Stderr = 0
	h = start(t, Config{Limits: limits}, false, spill)
	require.Equal(t, protocol.CodeOutputLimit, h.dial(first{}).finish().Code)

	limits = unlimited()
	limits.Stdout, limits.Stderr = 100, 100
	h = start(t, Config{Limits: limits}, false, spill)
	require.Equal(t, protocol.CodeOK, h.dial(first{}).finish().Code)

	limits = unlimited()
	limits.Stdin = 10
	h = start(t, Config{Limits: limits}, true, sleeper)
	c = h.dial(first{stdin: true})
	require.NoError(t, c.send(0, make([]byte, 10)))
	require.NoError(t, c.send(10, make([]byte, 1)))
	require.Equal(t, protocol.CodeInputLimit, c.finish().Code)
}

// noted is a process that remembers whether it was asked to end, or lost its input, first.
type noted struct {
	*fakehost.Process
	mu    sync.Mutex
	first string
}

func (n *noted) note(what string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.first == "" {
		n.first = what
	}
}

func (n *noted) Terminate() error {
	n.note("asked")
	return n.Process.Terminate()
}

func (n *noted) Stdin() io.WriteCloser { return notedInput{n.Process.Stdin(), n} }

type notedInput struct {
	io.WriteCloser
	of *noted
}

func (i notedInput) Close() error {
	i.of.note("lost its input")
	return i.WriteCloser.Close()
}

// TestStopIsNoEndOfInput: a command that is stopped for whatever reason does not take
// half of its input for all of it.
func TestStopIsNoEndOfInput(t *testing.T) {
	limits := unlimited()
	limits.Stdin, limits.Detached = 10, 0
	for title, stop := range map[string]func(h *harness, c *caller){
		"cancelled": func(h *harness, _ *caller) { h.op.Cancel(CauseCaller) },
		"shutdown":  func(h *harness, _ *caller) { h.op.Shutdown() },
		"too much":  func(_ *harness, c *caller) { _ = c.send(9, make([]byte, 9)) },
		"no text":   func(_ *harness, c *caller) { _ = c.send(9, []byte{0xff}) },
		"cut text": func(_ *harness, c *caller) {
			_ = c.send(9, []byte{0xe2})
			_ = c.WriteFrame(&protocol.StdinEnd{Total: 10})
		},
		"lost": func(_ *harness, c *caller) { _ = c.conn.Close() },
	} {
		var n *noted
		h := startAs(t, Config{Limits: limits, Text: true, Grace: time.Minute}, true, sleeper, func(p *fakehost.Process) route.Process {
			n = &noted{Process: p}
			return n
		})
		c := h.dial(first{stdin: true})
		require.NoError(t, c.send(0, []byte("half of i")), title)
		require.Eventually(t, func() bool {
			taken, _, _ := h.op.Totals()
			return taken == 9
		}, patience, time.Millisecond)
		stop(h, c)
		exit, err := n.Wait(t.Context())
		require.NoError(t, err)
		require.Equal(t, "SIGTERM", exit.Signal, title)
		h.op.Drop()
		h.wait(h.op.Done())
		require.Equal(t, "asked", n.first, title)
	}
}

// TestInputEndsLate: one that waits for the end of its input, asked or not, gets it
// before it is killed.
func TestInputEndsLate(t *testing.T) {
	h := start(t, Config{Grace: time.Hour}, true, func(c *fakehost.Child) route.Exit {
		_, _ = io.Copy(io.Discard, c.Stdin)
		select {
		case <-c.Terminated:
			return route.Exit{Code: 3}
		default:
			return route.Exit{Code: 1}
		}
	})
	c := h.dial(first{stdin: true})
	require.NoError(t, c.send(0, []byte("half")))
	h.op.Cancel(CauseCaller)
	exit := c.finish()
	require.Equal(t, 3, exit.Status)
	require.False(t, exit.Forced)
}

// TestNothingHelpsButKill: one that neither SIGTERM nor the end of its input ends.
func TestNothingHelpsButKill(t *testing.T) {
	h := start(t, Config{Grace: inputDelay + 100*time.Millisecond}, true, func(c *fakehost.Child) route.Exit {
		_, _ = io.Copy(io.Discard, c.Stdin)
		<-c.Killed
		return route.Exit{Signal: "SIGKILL"}
	})
	c := h.dial(first{stdin: true})
	h.op.Cancel(CauseCaller)
	require.Equal(t, "SIGKILL", c.finish().Signal)
}

func TestTextInput(t *testing.T) {
	word := []byte("a€𝄞b")
	for label, c := range map[string]struct {
		input []byte
		good  bool
	}{
		"good": {word, true}, "cut": {word[:3], false}, "bad": {[]byte("a\xffb"), false},
		"surrogate": {[]byte("\xed\xa0\x80"), false}, "replacement": {[]byte("\uFFFD"), true},
	} {
		for step := 1; step <= 4; step++ {
			t.Run(label, func(t *testing.T) {
				h := start(t, Config{Text: true}, true, func(c *fakehost.Child) route.Exit {
					all := make(chan struct{})
					go func() { // ends with the child's files
						defer close(all)
						copyAll(c.Stdout, c.Stdin)
					}()
					select {
					case <-all:
						return route.Exit{}
					case <-c.Terminated:
						return route.Exit{Signal: "SIGTERM"}
					}
				})
				caller := h.dial(first{stdin: true})
				for i := 0; i < len(c.input); i += step {
					if caller.send(uint64(i), c.input[i:min(i+step, len(c.input))]) != nil {
						break
					}
				}
				_ = caller.WriteFrame(&protocol.StdinEnd{Total: uint64(len(c.input))})
				exit := caller.finish()
				if c.good {
					require.Equal(t, protocol.CodeOK, exit.Code)
					require.Equal(t, c.input, caller.stdout)
				} else {
					require.NotEqual(t, protocol.CodeOK, exit.Code)
				}
			})
		}
	}
}

func TestGrandchildThatHoldsAnOutput(t *testing.T) {
	h := start(t, Config{Drain: 50 * time.Millisecond}, false, func(c *fakehost.Child) route.Exit {
		_, _ = c.Stdout.WriteString("all that it said")
		c.Keep(c.Stdout)
		return route.Exit{Code: 7}
	})
	c := h.dial(first{})
	exit := c.finish()
	require.Equal(t, protocol.CodeOK, exit.Code)
	require.Equal(t, 7, exit.Status, "the real exit status")
	require.True(t, exit.Forced)
	require.Equal(t, "all that it said", string(c.stdout))
}

func TestSlowReaderLosesNothing(t *testing.T) {
	const size = 12 << 20
	h := start(t, Config{Drain: 20 * time.Millisecond}, false, printer(size))
	c := h.dial(first{})
	c.until(func() bool { return c.accepted != nil })
	pause := time.NewTicker(5 * time.Millisecond)
	defer pause.Stop()
	for c.exit == nil {
		if len(c.stdout)%(8*protocol.MaxData) == 0 {
			<-pause.C
		}
		_, err := c.next()
		require.NoError(t, err)
	}
	require.False(t, c.exit.Forced)
	require.True(t, bytes.Equal(pattern(size), c.stdout))
}

func TestStalledReaderStopsTheChild(t *testing.T) {
	h := start(t, Config{}, false, func(c *fakehost.Child) route.Exit {
		for {
			if _, err := c.Stdout.Write(make([]byte, 64<<10)); err != nil {
				return route.Exit{Code: 1}
			}
		}
	})
	c := h.dial(first{})
	c.noAcks = true
	c.until(func() bool { return len(c.stdout) >= protocol.MinWindow-protocol.MaxData })
	_, out, _ := h.op.Totals()
	require.LessOrEqual(t, out, uint64(protocol.MinWindow+protocol.MaxData))
	require.LessOrEqual(t, h.budget.Used(), int64(3*protocol.MinWindow))
}

func TestAttachGetsTheRest(t *testing.T) {
	const size = 6 << 20
	h := start(t, Config{}, false, printer(size))
	want := pattern(size)
	var have []byte
	var last *caller
	for _, cut := range []int{0, 1, 70_000, 1 << 20, 1<<20 + 3, 3 << 20} {
		c := h.dial(first{attach: last != nil, token: true, stdout: uint64(len(have))})
		c.until(func() bool { return c.accepted != nil })
		require.Equal(t, uint64(len(have)), c.accepted.Stdout)
		c.until(func() bool { return len(have)+len(c.stdout) >= cut })
		have = append(have, c.stdout...)
		require.NoError(t, c.conn.Close())
		require.Error(t, c.result())
		last = c
	}
	c := h.dial(first{attach: true, token: true, stdout: uint64(len(have))})
	exit := c.finish()
	require.Equal(t, protocol.CodeOK, exit.Code)
	require.True(t, bytes.Equal(want, append(have, c.stdout...)))
}

func TestAttachAfterTheEnd(t *testing.T) {
	h := start(t, Config{}, false, printer(100))
	c := h.dial(first{})
	c.until(func() bool { return c.exit != nil })
	require.NoError(t, c.conn.Close())
	require.Error(t, c.result())
	again := h.dial(first{attach: true, stdout: 40})
	exit := again.finish()
	require.Equal(t, uint64(100), exit.Stdout)
	require.Equal(t, pattern(100)[40:], again.stdout)
	h.wait(h.op.Done())
	require.ErrorIs(t, h.dial(first{attach: true}).result(), ErrSettled)
}

func TestAttachSupplants(t *testing.T) {
	h := start(t, Config{}, true, func(c *fakehost.Child) route.Exit {
		copyAll(c.Stdout, c.Stdin)
		return route.Exit{}
	})
	one := h.dial(first{stdin: true})
	require.NoError(t, one.send(0, []byte("one ")))
	one.until(func() bool { return len(one.stdout) == 4 })

	plain := h.dial(first{attach: true})
	require.ErrorIs(t, plain.result(), ErrBusy)

	two := h.dial(first{attach: true, token: true, stdout: 4})
	require.Error(t, one.result())
	two.until(func() bool { return two.accepted != nil })
	require.Equal(t, uint64(4), two.accepted.Stdin)
	require.NoError(t, two.send(4, []byte("two")))
	require.NoError(t, two.WriteFrame(&protocol.StdinEnd{Total: 7}))
	require.Equal(t, uint64(7), two.finish().Stdout)
	require.Equal(t, "two", string(two.stdout))
}

func TestViolationsEndTheOperation(t *testing.T) {
	for label, f := range map[string]protocol.Frame{
		"ack-of-what-was-not-sent": &protocol.Ack{Stdout: 5},
		"input-where-none-is":      &protocol.Data{Payload: []byte("x")},
		"second-start":             firstFrame(t, first{}),
	} {
		t.Run(label, func(t *testing.T) {
			h := start(t, Config{}, false, sleeper)
			c := h.dial(first{})
			c.until(func() bool { return c.accepted != nil })
			require.NoError(t, c.WriteFrame(f))
			require.True(t, violation(c.result()))
			h.op.Drop()
			h.wait(h.op.Done())
			exit, ok := h.op.Ended()
			require.True(t, ok)
			require.Equal(t, protocol.CodeProtocolViolation, exit.Code)
		})
	}
}

func TestDetachedGrace(t *testing.T) {
	limits := unlimited()
	limits.Detached = 20 * time.Millisecond
	h := start(t, Config{Limits: limits}, false, sleeper)
	c := h.dial(first{})
	c.until(func() bool { return c.accepted != nil })
	require.NoError(t, c.conn.Close())
	h.wait(h.op.Done())
	exit, ok := h.op.Ended()
	require.True(t, ok)
	require.Equal(t, protocol.CodePeerGone, exit.Code)
}

// Without a grace the end comes with the end of the stream, and not before the
// stream of the Start is there.
func TestKillOnDisconnect(t *testing.T) {
	limits := unlimited()
	limits.Detached = 0
	h := start(t, Config{Limits: limits}, false, sleeper)
	c := h.dial(first{})
	c.until(func() bool { return c.accepted != nil })
	require.Zero(t, c.accepted.Limits.Detached, "the caller is told")
	_, ended := h.op.Ended()
	require.False(t, ended)
	require.NoError(t, c.conn.Close())
	h.wait(h.op.Done())
	exit, ok := h.op.Ended()
	require.True(t, ok)
	require.Equal(t, protocol.CodePeerGone, exit.Code)

	h = start(t, Config{Limits: limits}, false, printer(10))
	require.Equal(t, uint64(10), h.dial(first{}).finish().Stdout, "who stays gets all")
}

func TestTooManyProcesses(t *testing.T) {
	h := start(t, Config{}, false, func(*fakehost.Child) route.Exit { return route.Exit{Signal: "SIGKILL", Limited: true} })
	exit := h.dial(first{}).finish()
	require.Equal(t, protocol.CodeResourceLimit, exit.Code)
	require.Equal(t, "SIGKILL", exit.Signal)
}

func TestMissingExitAck(t *testing.T) {
	h := start(t, Config{ExitAck: 20 * time.Millisecond}, false, printer(10))
	c := h.dial(first{})
	c.until(func() bool { return c.exit != nil })
	require.ErrorContains(t, c.result(), "timeout")
	require.Equal(t, uint64(10), h.dial(first{attach: true}).finish().Stdout, "the tail is still there")
}

func TestRetiredRoute(t *testing.T) {
	h := start(t, Config{}, false, func(*fakehost.Child) route.Exit { return route.Exit{Signal: "SIGTERM", Retired: true} })
	require.Equal(t, protocol.CodeRouteRetired, h.dial(first{}).finish().Code)
}

func TestCancelBeforeRun(t *testing.T) {
	op := New(Config{Budget: NewBudget(1 << 20), Limits: unlimited()})
	op.Cancel(CauseCaller)
	require.ErrorIs(t, context.Cause(op.Context()), CauseCaller)
	p, err := fakehost.Start(sleeper, nil, false)
	require.NoError(t, err)
	op.Run(p)
	op.Drop()
	<-op.Done()
	exit, ok := op.Ended()
	require.True(t, ok)
	require.Equal(t, protocol.CodeCancelled, exit.Code)
}

func TestFullBudgetKeepsToTheFloor(t *testing.T) {
	h := start(t, Config{Budget: NewBudget(1)}, false, printer(4<<20))
	c := h.dial(first{})
	require.Equal(t, uint64(4<<20), c.finish().Stdout)
	require.True(t, bytes.Equal(pattern(4<<20), c.stdout))
}

func TestReplayShowsThatTheOutputIsGone(t *testing.T) {
	h := start(t, Config{}, false, printer(10))
	end := h.dial(first{}).finish()
	c := replay(t, end)
	require.Equal(t, end, c.finish())
	require.Equal(t, uint64(10), c.accepted.Stdout)
	require.Empty(t, c.stdout)

	c = replay(t, end)
	c.until(func() bool { return c.exit != nil })
	require.NoError(t, c.conn.Close())
	require.Error(t, c.result(), "not acknowledged")
}

func TestShutdownWaitsForNobodyToAttach(t *testing.T) {
	limits := unlimited()
	limits.Detached = time.Hour
	h := start(t, Config{Limits: limits}, false, sleeper)
	h.op.Shutdown()
	h.wait(h.op.Done())
	exit, ok := h.op.Ended()
	require.True(t, ok)
	require.Equal(t, protocol.CodeShuttingDown, exit.Code)

	h = start(t, Config{Limits: limits}, false, sleeper)
	c := h.dial(first{})
	c.until(func() bool { return c.accepted != nil })
	h.op.Shutdown()
	require.Equal(t, protocol.CodeShuttingDown, c.finish().Code, "who is attached gets the end")
	h.wait(h.op.Done())
}

func TestSenderThatIgnoresItsWindow(t *testing.T) {
	h := start(t, Config{}, true, sleeper)
	c := h.dial(first{stdin: true})
	sent := make(chan error, 1)
	go func() { sent <- c.send(0, make([]byte, 64<<20)) }()
	c.until(func() bool { return c.accepted != nil })
	require.Eventually(t, func() bool { return h.budget.Used() >= protocol.MaxWindow-protocol.MaxData }, patience, time.Millisecond)
	require.LessOrEqual(t, h.budget.Used(), int64(2*protocol.MaxWindow), "the stream is not read further")
	h.op.Cancel(CauseCaller)
	c.until(func() bool { return c.exit != nil })
	require.NoError(t, c.conn.Close())
	require.Error(t, <-sent)
}

// spec: FLOW-8
func TestSenderThatIgnoresItsWindowAndLeaves(t *testing.T) {
	limits := unlimited()
	limits.Detached = 0
	h := start(t, Config{Limits: limits}, true, sleeper)
	c := h.dial(first{stdin: true})
	sent := make(chan error, 1)
	go func() { sent <- c.send(0, make([]byte, 64<<20)) }()
	c.until(func() bool { return c.accepted != nil })
	require.Eventually(t, func() bool { return h.budget.Used() >= protocol.MaxWindow-protocol.MaxData }, patience, time.Millisecond)
	_, err := c.next()
	require.NoError(t, err)
	require.Zero(t, <-c.taken, "it hears again what was acknowledged, since it is not read")
	require.NoError(t, c.conn.Close())
	require.Error(t, <-sent)
	h.wait(h.op.Done())
	exit, ok := h.op.Ended()
	require.True(t, ok)
	require.Equal(t, protocol.CodePeerGone, exit.Code)
	require.Error(t, c.result())
}

func TestInputAfterTheChildIsGone(t *testing.T) {
	h := start(t, Config{}, true, func(*fakehost.Child) route.Exit { return route.Exit{} })
	c := h.dial(first{stdin: true})
	c.until(func() bool { return c.exit != nil })
	require.NoError(t, c.send(0, make([]byte, 1000)), "it is on its way and dropped")
	require.NoError(t, c.WriteFrame(&protocol.StdinEnd{Total: 1000}))
	require.Zero(t, c.finish().Stdin)
}

func TestClosedOutputsAndSilentOnes(t *testing.T) {
	h := start(t, Config{}, false, func(c *fakehost.Child) route.Exit {
		_ = c.Stdout.Close()
		_, _ = c.Stderr.WriteString("only this")
		return route.Exit{Code: 1}
	})
	c := h.dial(first{})
	exit := c.finish()
	require.Equal(t, 1, exit.Status)
	require.Equal(t, "only this", string(c.stderr))
	require.Zero(t, exit.Stdout)
}

func TestBufferFitsWhatItKeeps(t *testing.T) {
	b := NewBudget(1 << 20)
	small := b.copied([]byte("a line"))
	require.Less(t, b.Used(), int64(100))
	large := b.copied(make([]byte, keepWhole))
	require.GreaterOrEqual(t, b.Used(), int64(pooledSize))
	require.Equal(t, "a line", string(small.payload()))
	large.refs++
	b.unref(large)
	require.GreaterOrEqual(t, b.Used(), int64(pooledSize), "a write still uses it")
	b.unref(large)
	b.unref(small)
	require.Zero(t, b.Used())
}

func TestTransportThatFails(t *testing.T) {
	p, err := fakehost.Start(func(c *fakehost.Child) route.Exit { <-c.Killed; return route.Exit{} }, nil, false)
	require.NoError(t, err)
	op := New(Config{Budget: NewBudget(1 << 20), Limits: unlimited(), Grace: time.Millisecond})
	op.Run(brokenWait{p})
	op.Drop()
	<-op.Done()
	exit, ok := op.Ended()
	require.True(t, ok)
	require.Equal(t, protocol.CodeInternal, exit.Code)
}
