package client

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/gateway/client/internal/input"
	"github.com/lendcli/lend/protocol"
)

func list(c *Client, args ...string) *Cmd {
	return c.Command(context.Background(), "github", "issue.list", args...)
}

func TestOutputAndSuccess(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) { //nolint:thelper // the test itself
		c := f.dial(t)
		for i := range 3 { // the first is cold, the others are warm
			f.then(exits(stdout(0, "hello "), stdout(6, "world"), &protocol.Exit{Stdout: 11, Duration: time.Second}))
			cmd := list(c, "--repo", "a/b", "\xff")
			out, err := cmd.Output()
			require.NoError(t, err)
			require.Equal(t, "hello world", string(out))
			require.Equal(t, time.Second, cmd.Exit().Duration)
			require.Equal(t, protocol.NoLimit, cmd.Limits().Stdout)
			require.NoError(t, cmd.Wait(), "again")

			s := f.seen()[i]
			require.Equal(t, []string{"--repo", "a/b", "\xff"}, s.Arguments)
			require.Equal(t, "2.40.1", s.Version.String())
			require.False(t, s.Stdin, "no input")
			require.Equal(t, cmd.OperationID, s.Operation.String())
		}
		require.NotEqual(t, f.seen()[0].Operation, f.seen()[1].Operation)
	})
}

func TestEveryEndHasItsError(t *testing.T) {
	f := newFixture(overQUIC)
	c := f.dial(t)
	for _, tc := range []struct {
		exit   protocol.Exit
		want   error
		status int
	}{
		{protocol.Exit{Status: 3}, &ExitError{Code: 3}, 3},
		{protocol.Exit{Signal: "SIGSEGV", Core: true}, &ExitError{Signal: "SIGSEGV", Core: true}, 139},
		{protocol.Exit{Code: protocol.CodeNotStarted}, &RefusedError{Code: protocol.CodeNotStarted}, 126},
		{protocol.Exit{Code: protocol.CodeTimeout, Signal: "SIGKILL"}, &EndedError{
			Code: protocol.CodeTimeout, Exit: &protocol.Exit{Code: protocol.CodeTimeout, Signal: "SIGKILL"},
		}, 124},
	} {
		f.then(exits(&tc.exit))
		err := list(c).Run()
		require.Equal(t, tc.want, err)
		require.Equal(t, tc.status, ExitStatus(err))
		require.NotEmpty(t, err.Error())
	}
	f.then(exits(&protocol.Exit{Code: protocol.CodeOutcomeUnknown}))
	err := list(c).Run()
	require.ErrorIs(t, err, ErrOutcomeUnknown)
	require.Equal(t, 255, ExitStatus(err))
}

// spec: END-4
func TestEndIsAcknowledged(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) { //nolint:thelper // the test itself
		c := f.dial(t)
		acked := make(chan bool, 1)
		f.then(func(v *served) {
			v.send(acceptedFrame(), stdout(0, "x"), &protocol.Exit{Stdout: 1})
			_, ok := v.acked()
			acked <- ok
		})
		require.NoError(t, list(c).Run())
		require.True(t, <-acked)
	})
}

// spec: END-3
func TestMissingBytesAreNoSuccess(t *testing.T) {
	f := newFixture(overTCP)
	c := f.dial(t)
	f.then(exits(stdout(0, "x"), &protocol.Exit{Stdout: 2}))
	cmd := list(c)
	err := cmd.Run()
	require.ErrorIs(t, err, ErrOutcomeUnknown)
	var ended *EndedError
	require.ErrorAs(t, err, &ended)
	require.Equal(t, uint64(2), ended.Exit.Stdout)

	attached := acceptedFrame()
	attached.Attached, attached.Stdout = true, 5
	f.then(func(v *served) {
		v.send(attached, stdout(5, "tail"), &protocol.Exit{Stdout: 9})
		v.acked()
	})
	out, err := list(c).Output()
	require.ErrorIs(t, err, ErrOutcomeUnknown)
	require.Empty(t, out, "nothing after a hole")
}

// echo sends the input back, and acknowledges it.
func echo(v *served) {
	v.send(acceptedFrame())
	var in, out uint64
	for {
		f, err := v.Reader.Read()
		if err != nil {
			return
		}
		switch f := f.(type) {
		case *protocol.Data:
			d := *f
			d.Stream, d.Offset = protocol.Stdout, out
			in, out = in+uint64(len(f.Payload)), out+uint64(len(f.Payload))
			v.send(&d, &protocol.Ack{Stdin: in})
		case *protocol.StdinEnd:
			v.send(&protocol.Exit{Stdin: in, Stdout: out})
		}
		if _, last := f.(*protocol.ExitAck); last {
			v.acked()
			return
		}
	}
}

func TestInputGoesThrough(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) { //nolint:thelper // the test itself
		c := f.dial(t)
		for _, size := range []int{0, 1, 65535, 65537, 3 << 20} {
			want := bytes.Repeat([]byte("0123456789abcdef"), size/16+1)[:size]
			for _, r := range []io.Reader{bytes.NewReader(want), struct{ io.Reader }{bytes.NewReader(want)}} {
				f.then(echo)
				cmd := list(c)
				cmd.Stdin = r
				out, err := cmd.Output()
				require.NoError(t, err)
				require.True(t, bytes.Equal(want, out), "%d bytes", size)
			}
		}
	})
}

func TestPipes(t *testing.T) {
	f := newFixture(overTCP)
	c := f.dial(t)
	f.then(echo)
	cmd := list(c)
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	errs, err := cmd.StderrPipe()
	require.NoError(t, err)
	_, err = cmd.StdinPipe()
	require.Error(t, err, "twice")
	require.NoError(t, cmd.Start())
	buf := make([]byte, 4)
	for _, word := range []string{"ping", "pong"} { // each answer comes before the next question
		_, err = io.WriteString(in, word)
		require.NoError(t, err)
		_, err = io.ReadFull(out, buf)
		require.NoError(t, err)
		require.Equal(t, word, string(buf))
	}
	require.NoError(t, in.Close())
	rest, err := io.ReadAll(out)
	require.NoError(t, err)
	require.Empty(t, rest)
	rest, err = io.ReadAll(errs)
	require.NoError(t, err)
	require.Empty(t, rest)
	require.NoError(t, cmd.Wait())
}

// failing takes n bytes and then fails, as a closed pipe does.
type failing struct{ n int }

func (w *failing) Write(b []byte) (int, error) {
	if w.n -= len(b); w.n < 0 {
		return 0, io.ErrClosedPipe
	}
	return len(b), nil
}

// spec: OUTPUT-2
func TestClosedOutputIsTold(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) { //nolint:thelper // the test itself
		c := f.dial(t)
		got := make(chan protocol.Frame, 1)
		f.then(func(v *served) {
			v.send(acceptedFrame(), stdout(0, "1"), stdout(1, "2"))
			for {
				f, err := v.Reader.Read()
				if err != nil {
					return
				}
				if o, ok := f.(*protocol.OutputClosed); ok {
					got <- o
					break
				}
			}
			v.send(&protocol.Exit{Signal: "SIGPIPE", Stdout: 9})
			v.acked()
		})
		cmd := list(c)
		cmd.Stdout = &failing{1}
		err := cmd.Run()
		require.Equal(t, &ExitError{Signal: "SIGPIPE"}, err)
		require.Equal(t, 141, ExitStatus(err))
		require.Equal(t, &protocol.OutputClosed{Stream: protocol.Stdout}, <-got)
	})
}

// spec: STDIN-3
func TestClosedInputStopsTheReader(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) { //nolint:thelper // the test itself
		c := f.dial(t)
		f.then(func(v *served) {
			v.send(acceptedFrame(), &protocol.StdinClosed{}, stdout(0, "done"))
			for {
				f, err := v.Reader.Read()
				if _, ok := f.(*protocol.OutputClosed); err != nil || ok {
					break
				}
			}
			v.send(&protocol.Exit{Stdout: 4})
			v.acked()
		})
		cmd := list(c)
		in, err := cmd.StdinPipe()
		require.NoError(t, err)
		cmd.Stdout = &failing{} // tells the gateway to go on
		require.NoError(t, cmd.Start())
		for err == nil {
			_, err = in.Write([]byte("more"))
		}
		require.ErrorIs(t, err, input.ErrOver)
		require.NoError(t, cmd.Wait())
	})
}

func TestUnreadInputDoesNotHoldWait(t *testing.T) {
	f := newFixture(overTCP)
	c := f.dial(t)
	f.then(exits(&protocol.Exit{}))
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer w.Close()
	defer r.Close()
	cmd := list(c)
	cmd.Stdin = r
	require.NoError(t, cmd.Run())
	_, err = w.WriteString("later")
	require.NoError(t, err)
	buf := make([]byte, 5)
	_, err = io.ReadFull(r, buf)
	require.NoError(t, err, "what is written later is not taken")
	require.Equal(t, "later", string(buf))
}

// spec: STDIN-1
func TestBrokenInputIsNoEnd(t *testing.T) {
	f := newFixture(overQUIC)
	c := f.dial(t)
	stop, ended := make(chan struct{}), false
	f.onControl(func(protocol.ControlRequest) protocol.ControlReply {
		close(stop)
		return &protocol.CancelReply{State: protocol.OperationRunning}
	})
	f.then(func(v *served) {
		v.send(acceptedFrame())
		<-stop
		v.send(&protocol.Exit{Code: protocol.CodeCancelled})
		frames, _ := v.acked()
		for _, f := range frames {
			_, is := f.(*protocol.StdinEnd)
			ended = ended || is
		}
	})
	broken := errors.New("disk on fire")
	cmd := list(c)
	cmd.Stdin = io.MultiReader(strings.NewReader("abc"), errReader{broken})
	err := cmd.Run()
	require.ErrorIs(t, err, broken)
	require.EqualError(t, err, "standard input: disk on fire; the command was cancelled")
	require.Equal(t, 255, ExitStatus(err))
	require.NoError(t, c.Close())
	f.close()
	require.False(t, ended)
}

type errReader struct{ err error }

func (r errReader) Read([]byte) (int, error) { return 0, r.err }

// spec: FLOW-2
func TestOutputIsAcknowledged(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) { //nolint:thelper // the test itself
		c := f.dial(t)
		const total = 8 << 20
		f.then(func(v *served) {
			window := protocol.NewWindow(0)
			v.send(acceptedFrame())
			for window.Acked() < total-protocol.AckEvery {
				for window.Room() > 0 && window.Sent() < total {
					n := min(window.Room(), protocol.MaxData, total-int(window.Sent()))
					if !v.send(&protocol.Data{Stream: protocol.Stdout, Offset: window.Sent(), Payload: make([]byte, n)}) {
						return
					}
					window.Add(n)
				}
				f, err := v.Reader.Read()
				if err != nil {
					return
				}
				if a, ok := f.(*protocol.Ack); ok && window.Ack(a.Stdout) != nil {
					return
				}
			}
			v.send(&protocol.Exit{Stdout: total})
			v.acked()
		})
		out, err := list(c).Output()
		require.NoError(t, err)
		require.Len(t, out, total)
	})
}

// spec: FLOW-5
func TestBothWindowsFullDoNotLock(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) { //nolint:thelper // the test itself
		c := f.dial(t)
		const total = 4 << 20
		f.then(func(v *served) {
			v.send(acceptedFrame())
			var wg sync.WaitGroup
			var in uint64
			ended := make(chan struct{})
			wg.Go(func() { // reads on whatever the other does
				for {
					f, err := v.Reader.Read()
					if err != nil {
						return
					}
					switch f := f.(type) {
					case *protocol.Data:
						in += uint64(len(f.Payload))
						v.send(&protocol.Ack{Stdin: in})
					case *protocol.StdinEnd:
						close(ended)
					case *protocol.ExitAck:
						_ = v.Close()
						return
					}
				}
			})
			for at := uint64(0); at < total; at += 32 << 10 {
				v.send(&protocol.Data{Stream: protocol.Stderr, Offset: at, Payload: make([]byte, 32<<10)})
			}
			<-ended
			v.send(&protocol.Exit{Stdin: total, Stderr: total})
			wg.Wait()
		})
		cmd := list(c)
		cmd.Stdin = struct{ io.Reader }{bytes.NewReader(make([]byte, total))}
		require.NoError(t, cmd.Run())
	})
}

func TestUseOfACmd(t *testing.T) {
	f := newFixture(overTCP)
	c := f.dial(t)
	require.Error(t, list(c).Wait(), "not started")
	require.Nil(t, list(c).Exit())
	require.Zero(t, list(c).Limits())
	_, err := list(c).Cancel(context.Background(), 0)
	require.Error(t, err)
	f.then(exits(&protocol.Exit{}))
	cmd := list(c)
	require.NoError(t, cmd.Run())
	require.Error(t, cmd.Start(), "twice")
	_, err = cmd.Output()
	require.Error(t, err)
	_, err = cmd.StdoutPipe()
	require.Error(t, err)
	cmd = list(c)
	cmd.Stdout = io.Discard
	_, err = cmd.Output()
	require.Error(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	err = c.Command(ctx, "github", "issue.list").Run()
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, 130, ExitStatus(err))
	require.NoError(t, c.Close())
	require.NoError(t, c.Close(), "twice")
	require.ErrorIs(t, list(c).Run(), ErrClosed)
	_, err = c.Catalog(context.Background())
	require.ErrorIs(t, err, ErrClosed)
}
