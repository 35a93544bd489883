package client

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/protocol"
)

func joined(stdin uint64) *protocol.Accepted {
	a := acceptedFrame()
	a.Attached, a.Stdin = true, stdin
	return a
}

// spec: ACCEPT-1
func TestLostBeforeTheAnswerIsAskedAgain(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) { //nolint:thelper // the test itself
		c := f.dial(t)
		f.then(resets, func(v *served) {
			v.send(joined(0), stdout(0, "once"), &protocol.Exit{Stdout: 4})
			v.acked()
		})
		out, err := list(c).Output()
		require.NoError(t, err)
		require.Equal(t, "once", string(out))
		starts := f.seen()
		require.Len(t, starts, 2)
		require.Equal(t, starts[0], starts[1], "the same request")
	})
}

func TestLostBeforeTheAnswerForGood(t *testing.T) {
	f := newFixture(overTCP)
	f.config.Wait = 300 * time.Millisecond
	c := f.dial(t)
	err := list(c).Run()
	require.ErrorIs(t, err, ErrOutcomeUnknown)
	require.Equal(t, 255, ExitStatus(err))
	require.Greater(t, len(f.seen()), 1)

	// A refusal of the second request says nothing about the first …
	for code, unknown := range map[protocol.Code]bool{
		protocol.CodeLeaseExpired: true, protocol.CodeOutcomeUnknown: true,
		protocol.CodeNotStarted: false, // … unless it speaks of the operation
	} {
		f.config.Wait = 10 * time.Second
		f.then(resets, refuses(code, 0))
		err = list(c).Run()
		if unknown {
			require.ErrorIs(t, err, ErrOutcomeUnknown)
		} else {
			require.Equal(t, 126, ExitStatus(err))
		}
	}
}

func TestAViolationIsNotTriedAgain(t *testing.T) {
	f := newFixture(overTCP)
	c := f.dial(t)
	for _, wrong := range [][]byte{{0}, {2, 0x4a, 0}, []byte("\x05hello")} {
		f.then(func(v *served) {
			_, _ = v.Write(wrong)
			_ = v.Close()
		})
		before := len(f.seen())
		err := list(c).Run()
		require.ErrorIs(t, err, ErrOutcomeUnknown)
		require.Len(t, f.seen(), before+1)
	}
	f.then(exits(stdout(5, "x")))
	require.ErrorContains(t, unwrapAll(list(c).Run()), "DATA-3")
	f.then(exits(&protocol.Ack{Stdin: 5}))
	require.ErrorContains(t, unwrapAll(list(c).Run()), "FLOW-4")
}

// unwrapAll returns the cause that an EndedError keeps.
func unwrapAll(err error) error {
	var e *EndedError
	if errors.As(err, &e) {
		return e.Cause
	}
	return err
}

// firstWrite is a buffer that tells of the first write.
type firstWrite struct {
	bytes.Buffer
	wrote chan struct{}
	once  sync.Once
}

func (f *firstWrite) Write(b []byte) (int, error) {
	f.once.Do(func() { close(f.wrote) })
	return f.Buffer.Write(b)
}

// Input that went with the request goes on where the gateway says, like any other.
// spec: ATTACH-3, START-6
func TestLostLinkAfterEarlyInput(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) { //nolint:thelper // the test itself
		c := f.dial(t)
		input := bytes.Repeat([]byte("input "), 100000)
		var got []byte
		for _, most := range []int{1, 400000} { // acknowledged, before the link is lost
			got = got[:0]
			done, out := make(chan struct{}), &firstWrite{wrote: make(chan struct{})}
			read := func(v *served, most int) {
				for len(got) < most {
					fr, err := v.Reader.Read()
					d, ok := fr.(*protocol.Data)
					if err != nil || !ok {
						return
					}
					got = append(got, d.Payload...)
				}
			}
			f.then(func(v *served) {
				v.send(acceptedFrame())
				read(v, most)
				v.send(&protocol.Ack{Stdin: uint64(len(got))}, stdout(0, "one "))
				<-out.wrote
				_ = v.Conn().Close()
			}, func(v *served) {
				v.Reader.Resume(uint64(len(got)))
				a := joined(uint64(len(got)))
				a.Stdout = v.first.(*protocol.Attach).Stdout
				v.send(a, stdout(4, "two"))
				read(v, 1<<30)
				defer close(done)
				v.send(&protocol.Exit{Stdin: uint64(len(got)), Stdout: 7})
				v.acked()
			})
			cmd := list(c)
			cmd.Stdin, cmd.Stdout = bytes.NewReader(input), out
			require.NoError(t, unwrapAll(cmd.Run()))
			<-done
			require.Equal(t, "one two", out.String())
			require.True(t, bytes.Equal(input, got))
		}
	})
}

// spec: ATTACH-3, END-3
func TestLostLinkIsJoinedAgain(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) { //nolint:thelper // the test itself
		c := f.dial(t)
		input := bytes.Repeat([]byte("input "), 100000)
		var got []byte
		read := func(v *served, most int) bool { // until so many bytes are there, or the end
			for len(got) < most {
				fr, err := v.Reader.Read()
				if err != nil {
					return false
				}
				switch fr := fr.(type) {
				case *protocol.Data:
					got = append(got, fr.Payload...)
				case *protocol.StdinEnd:
					return fr.Total == uint64(len(got))
				}
			}
			return true
		}
		var attach protocol.Frame
		whole := make(chan bool, 1)
		f.then(
			func(v *served) {
				v.send(acceptedFrame(), stdout(0, "one "))
				read(v, 1000)
				_ = v.Conn().Close() // not only the stream
			},
			resets, // and one attempt that fails
			func(v *served) {
				attach = v.first
				v.Reader.Resume(uint64(len(got)))
				a := joined(uint64(len(got)))
				a.Stdout = 4
				v.send(a, stdout(4, "two"))
				whole <- read(v, 1<<30)
				v.send(&protocol.Exit{Stdin: uint64(len(got)), Stdout: 7})
				v.acked()
			})
		cmd := list(c)
		cmd.Stdin = struct{ io.Reader }{bytes.NewReader(input)}
		out, err := cmd.Output()
		require.NoError(t, unwrapAll(err))
		require.Equal(t, "one two", string(out))
		require.True(t, <-whole)
		require.True(t, bytes.Equal(input, got))
		k := testKey(f)
		require.Equal(t, k.Issuer, attach.(*protocol.Attach).Issuer)
		require.Equal(t, "0123456789abcdef", string(attach.(*protocol.Attach).Token))
		require.Equal(t, uint64(4), attach.(*protocol.Attach).Stdout)
	})
}

func TestLostLinkWithoutGrace(t *testing.T) {
	f := newFixture(overQUIC)
	c := f.dial(t)
	short := acceptedFrame()
	short.Limits.Detached = 0
	f.then(func(v *served) {
		v.send(short, stdout(0, "partial"))
		hangsUp(v)
	})
	_, err := list(c).Output()
	require.ErrorIs(t, err, ErrOutcomeUnknown)

	for _, code := range []protocol.Code{protocol.CodeOperationUnknown, protocol.CodeUnsupported} {
		f.then(func(v *served) {
			v.send(acceptedFrame())
			hangsUp(v)
		}, refuses(code, 0)) // no Exit, then no Attach
		err = list(c).Run()
		require.ErrorIs(t, err, ErrOutcomeUnknown, "no end is no success")
		require.ErrorContains(t, unwrapAll(err), code.String())
	}
}

func TestCloseEndsTheWaitForALink(t *testing.T) {
	f := newFixture(overTCP)
	c := f.dial(t)
	long := acceptedFrame()
	long.Limits.Detached = time.Hour
	f.then(func(v *served) {
		v.send(long)
		_, _ = io.Copy(io.Discard, v.Stream)
	})
	cmd := list(c)
	require.NoError(t, cmd.Start())
	require.NoError(t, c.Close())
	require.ErrorIs(t, cmd.Wait(), ErrClosed)
}

// spec: ACCEPT-2
func TestLostOutputIsAHole(t *testing.T) {
	f := newFixture(overTCP)
	c := f.dial(t)
	f.then(
		func(v *served) {
			v.send(acceptedFrame(), stdout(0, "one "))
			hangsUp(v)
		},
		func(v *served) {
			a := joined(0)
			a.Stdout = 8
			v.send(a, stdout(8, "three"), &protocol.Exit{Stdout: 13})
			v.acked()
		})
	cmd := list(c)
	out, err := cmd.Output()
	require.ErrorIs(t, err, ErrOutcomeUnknown)
	require.Equal(t, "one ", string(out), "nothing after the hole")
	require.NotNil(t, cmd.Exit())

	f.then(
		func(v *served) {
			v.send(acceptedFrame(), stdout(0, "one "))
			hangsUp(v)
		},
		func(v *served) {
			v.send(joined(0), &protocol.Exit{})
			_ = v.Close()
		})
	_, err = list(c).Output()
	require.ErrorContains(t, unwrapAll(err), "ACCEPT-2")
}

// spec: START-6
func TestAnotherProcessGoesOnWithItsInput(t *testing.T) {
	f := newFixture(overTCP)
	c := f.dial(t)
	var got []byte
	f.then(func(v *served) {
		v.Reader.Resume(4)
		v.send(joined(4), &protocol.Ack{Stdin: 2})
		for {
			fr, err := v.Reader.Read()
			if err != nil {
				return
			}
			if d, ok := fr.(*protocol.Data); ok {
				got = append(got, d.Payload...)
			}
			if _, ok := fr.(*protocol.StdinEnd); ok {
				break
			}
		}
		v.send(&protocol.Ack{Stdin: 8}, &protocol.Exit{Stdin: 8})
		v.acked()
	})
	cmd := list(c)
	cmd.OperationID = "op-0123456789abcdef"
	cmd.Stdin = strings.NewReader("12345678")
	require.NoError(t, cmd.Run())
	require.Equal(t, "5678", string(got))
}

// spec: CONTROL-3
func TestCancel(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) { //nolint:thelper // the test itself
		c := f.dial(t)
		stop := make(chan *protocol.CancelRequest, 1)
		f.onControl(func(q protocol.ControlRequest) protocol.ControlReply {
			stop <- q.(*protocol.CancelRequest)
			return &protocol.CancelReply{State: protocol.OperationRunning}
		})
		asked := make(chan *protocol.CancelRequest, 1)
		runs := func(v *served) {
			v.send(acceptedFrame(), stdout(0, "x"))
			asked <- <-stop
			v.send(stdout(1, "y"), &protocol.Exit{Code: protocol.CodeCancelled, Signal: "SIGTERM", Stdout: 2})
			v.acked()
		}
		f.then(runs)
		ctx, cancel := context.WithCancel(context.Background())
		cmd := c.Command(ctx, "github", "issue.list")
		cmd.Grace = 3 * time.Second
		var out cancelling
		out.cancel = cancel
		cmd.Stdout = &out
		err := cmd.Run()
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, 130, ExitStatus(err))
		require.Equal(t, "xy", out.String(), "what came after the cancel is there")
		q := <-asked
		require.Equal(t, 3*time.Second, q.Grace)
		require.Equal(t, cmd.OperationID, q.Operation.String())
		require.Len(t, q.Lease, 1)

		f.then(runs)
		cmd = list(c)
		require.NoError(t, cmd.Start())
		state, err := cmd.Cancel(context.Background(), 0)
		require.NoError(t, err)
		require.Equal(t, protocol.OperationRunning, state)
		err = cmd.Wait()
		require.Equal(t, 130, ExitStatus(err))
		require.NotErrorIs(t, err, context.Canceled)
	})
}

// cancelling cancels at the first byte.
type cancelling struct {
	bytes.Buffer
	cancel func()
}

func (c *cancelling) Write(b []byte) (int, error) {
	c.cancel()
	return c.Buffer.Write(b)
}

func TestCancelBeforeTheAnswer(t *testing.T) {
	f := newFixture(overTCP)
	c := f.dial(t)
	stop := make(chan struct{})
	f.onControl(func(protocol.ControlRequest) protocol.ControlReply {
		close(stop)
		return &protocol.CancelReply{State: protocol.OperationNotStarted}
	})
	ctx, cancel := context.WithCancel(context.Background())
	f.then(func(v *served) {
		cancel()
		<-stop
		refuses(protocol.CodeCancelled, 0)(v)
	})
	err := c.Command(ctx, "github", "issue.list").Run()
	var refused *RefusedError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, 130, ExitStatus(err))
}

func TestCancelWithoutAnEndIsUnknown(t *testing.T) {
	f := newFixture(overQUIC)
	c := f.dial(t)
	ctx, cancel := context.WithCancel(context.Background())
	hold := make(chan struct{})
	f.then(func(v *served) {
		v.send(acceptedFrame())
		cancel()
		<-hold
	})
	cmd := c.Command(ctx, "github", "issue.list")
	cmd.CancelTimeout = 100 * time.Millisecond
	r, err := cmd.StdoutPipe()
	require.NoError(t, err)
	err = cmd.Run()
	close(hold)
	require.ErrorIs(t, err, ErrOutcomeUnknown)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, 255, ExitStatus(err))
	_, err = r.Read(make([]byte, 1))
	require.ErrorIs(t, err, context.Canceled, "the pipe tells as well")
}

// A gateway that cannot remember the cancel of an operation that it has not started
// yet is asked again: the operation may have started meanwhile.
func TestCancelIsRepeatedUntilItIsHeard(t *testing.T) {
	f := newFixture(overTCP)
	c := f.dial(t)
	ctx, cancel := context.WithCancel(t.Context())
	heard := make(chan struct{})
	f.onControl(func(protocol.ControlRequest) protocol.ControlReply {
		if len(f.questions()) < 3 {
			return (&protocol.Refusal{Code: protocol.CodeBusy}).Frame()
		}
		close(heard)
		return &protocol.CancelReply{State: protocol.OperationRunning}
	})
	f.then(func(v *served) {
		cancel() // before the answer
		<-heard
		if v.send(acceptedFrame(), &protocol.Exit{Code: protocol.CodeCancelled}) {
			v.acked()
		}
	})
	cmd := c.Command(ctx, "github", "issue.list")
	require.Equal(t, 130, ExitStatus(cmd.Run()))
	require.Len(t, f.questions(), 3)
}

// supplants gives n bytes of output, and the operation to another stream once they
// were acknowledged.
func supplants(n uint64) func(*served) {
	return func(v *served) {
		v.send(acceptedFrame())
		for at := uint64(0); at < n; at += 32 << 10 {
			v.send(stdout(at, strings.Repeat("x", 32<<10)))
		}
		for {
			f, err := v.Reader.Read()
			if a, ok := f.(*protocol.Ack); err != nil || ok && a.Stdout == n {
				break
			}
		}
		_ = v.ResetWithError(protocol.ResetBase + network.StreamErrorCode(protocol.CodeSupplanted))
	}
}

// Who is supplanted does not take the operation back, and is told its end. Success
// needs all of the bytes, as always. spec: CODE-3, END-3
func TestATakeoverIsNotFought(t *testing.T) {
	const some = 256 << 10                   // enough for an acknowledgement
	each(t, func(t *testing.T, f *fixture) { //nolint:thelper // the test itself
		c := f.dial(t)
		for total, status := range map[uint64]int{some: 7, some + 1: 255} {
			already := len(f.questions())
			f.onControl(func(protocol.ControlRequest) protocol.ControlReply {
				if len(f.questions()) < already+3 {
					return &protocol.StatusReply{State: protocol.OperationRunning}
				}
				return &protocol.StatusReply{State: protocol.OperationEnded, Exit: &protocol.Exit{Status: 7, Stdout: total}}
			})
			before := len(f.seen())
			f.then(supplants(some))
			cmd := list(c)
			_, err := cmd.Output()
			require.Equal(t, status, ExitStatus(err), "%v", err)
			require.Equal(t, 7, cmd.Exit().Status, "the end is known")
			require.Equal(t, status == 255, errors.Is(err, ErrTakenOver))
			asked := f.questions()[already:]
			require.Len(t, asked, 3)
			for _, q := range asked {
				require.IsType(t, &protocol.StatusRequest{}, q)
			}
			require.Len(t, f.seen(), before+1, "nothing is asked for again")
		}
	})
}

// spec: CODE-3
func TestATakeoverBeforeTheAnswer(t *testing.T) {
	f := newFixture(overQUIC)
	c := f.dial(t)
	f.onControl(func(protocol.ControlRequest) protocol.ControlReply {
		return &protocol.StatusReply{State: protocol.OperationOutcomeUnknown}
	})
	f.then(func(v *served) {
		_ = v.ResetWithError(protocol.ResetBase + network.StreamErrorCode(protocol.CodeSupplanted))
	})
	err := list(c).Run()
	require.ErrorIs(t, err, ErrTakenOver)
	require.ErrorIs(t, err, ErrOutcomeUnknown)
	require.Len(t, f.seen(), 1)
}

// It is another's now: leaving does not cancel it.
func TestLeavingAfterATakeover(t *testing.T) {
	f := newFixture(overTCP)
	c := f.dial(t)
	ctx, cancel := context.WithCancel(t.Context())
	f.onControl(func(q protocol.ControlRequest) protocol.ControlReply {
		require.IsType(t, &protocol.StatusRequest{}, q)
		time.AfterFunc(50*time.Millisecond, cancel)
		return &protocol.StatusReply{State: protocol.OperationRunning}
	})
	f.then(func(v *served) {
		_ = v.ResetWithError(protocol.ResetBase + network.StreamErrorCode(protocol.CodeSupplanted))
	})
	err := c.Command(ctx, "github", "issue.list").Run()
	require.ErrorIs(t, err, ErrTakenOver)
	require.Equal(t, 255, ExitStatus(err))
}
