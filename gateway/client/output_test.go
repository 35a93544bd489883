package client

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lendcli/lend/protocol"
)

// breaks is a writer that takes so many bytes, and then fails.
type breaks struct {
	after int
	err   error
}

func (b *breaks) Write(p []byte) (int, error) {
	n := min(len(p), b.after)
	b.after -= n
	if n < len(p) {
		return n, b.err
	}
	return n, nil
}

func full() error { return &fs.PathError{Op: "write", Path: "secret", Err: syscall.ENOSPC} }

func stderrData(offset uint64, s string) *protocol.Data {
	return &protocol.Data{Stream: protocol.Stderr, Offset: offset, Payload: []byte(s)}
}

// An output that cannot be written here is never a success, whatever the command says,
// and no status of the command either.
func TestLostOutputIsNoSuccess(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) { //nolint:thelper // the test itself
		c := f.dial(t)
		for text, exit := range map[string]protocol.Exit{
			"standard output: no space left on device; the command has ended with status 0":                    {},
			"standard output: no space left on device; the command has ended with status 3":                    {Status: 3},
			"standard output: no space left on device; the command was ended by SIGPIPE":                       {Signal: "SIGPIPE"},
			"standard output: no space left on device; ended: TIMEOUT: the command ran longer than is allowed": {Code: protocol.CodeTimeout},
		} {
			exit.Stdout = 9
			f.then(exits(stdout(0, "lost"), stdout(4, "again"), &exit))
			cmd := list(c)
			cmd.Stdout = &breaks{2, full()}
			err := cmd.Run()
			require.EqualError(t, err, text)
			require.Equal(t, 255, ExitStatus(err))
			require.ErrorIs(t, err, syscall.ENOSPC)
			require.Equal(t, exit.Status, cmd.Exit().Status, "the end is there")
			var lost *OutputError
			require.ErrorAs(t, err, &lost)
			var own *ExitError
			require.NotErrorAs(t, err, &own, "nobody takes it for the command's")
			require.Equal(t, exit.Status != 0 || exit.Signal != "", errors.As(lost.End, &own))
			var ended *EndedError
			require.Equal(t, exit.Code == protocol.CodeTimeout, errors.As(err, &ended))
			require.Equal(t, err, cmd.Wait(), "again")
		}

		// the other output is named, and goes on to be so when both fail
		f.then(exits(stderrData(0, "x"), stdout(0, "y"), &protocol.Exit{Stdout: 1, Stderr: 1}))
		cmd := list(c)
		cmd.Stdout, cmd.Stderr = &breaks{0, full()}, &breaks{0, nil} // a write that is short, and says nothing
		require.EqualError(t, cmd.Run(), "standard error: short write; the command has ended with status 0")
	})
}

// A reader that has enough has lost nothing: the command's own end counts.
func TestReaderThatLeftIsNoError(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) { //nolint:thelper // the test itself
		c := f.dial(t)
		for _, left := range []error{io.ErrClosedPipe, os.NewSyscallError("write", syscall.EPIPE), &fs.PathError{Op: "write", Path: "x", Err: syscall.ECONNRESET}} {
			for status, end := range map[int]protocol.Exit{0: {Stdout: 4}, 3: {Stdout: 4, Status: 3}, 141: {Stdout: 4, Signal: "SIGPIPE"}} {
				f.then(exits(stdout(0, "left"), &end))
				cmd := list(c)
				cmd.Stdout = &breaks{1, left}
				require.Equal(t, status, ExitStatus(cmd.Run()), "%v", left)
			}
		}
	})
}

func TestLostOutputOfAnAttach(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) { //nolint:thelper // the test itself
		c := f.dial(t)
		for _, tail := range []bool{false, true} {
			f.then(attached(make(chan *protocol.Attach, 1), 0, stdout(0, "all of it"), &protocol.Exit{Stdout: 9}))
			cmd := c.Attach(t.Context(), elsewhere)
			cmd.Tail, cmd.Stdout = tail, &breaks{0, full()}
			err := cmd.Run()
			require.EqualError(t, err, "standard output: no space left on device; the command has ended with status 0")
			require.Equal(t, 255, ExitStatus(err))
		}
	})
}

// Both are said when the end is not known either. What the gateway left out is gone with
// the rest.
func TestLostOutputAndNoEnd(t *testing.T) {
	f := newFixture(overTCP)
	f.config.Wait = -1
	c := f.dial(t)
	f.then(func(v *served) {
		a := acceptedFrame()
		a.Limits.Detached = 0
		v.send(a, stdout(0, "lost"))
		for { // until the caller has failed to write it
			got, err := v.Reader.Read()
			if _, closed := got.(*protocol.OutputClosed); closed || err != nil {
				break
			}
		}
		_ = v.Reset()
	})
	cmd := list(c)
	cmd.Stdout = &breaks{0, full()}
	err := cmd.Run()
	require.ErrorIs(t, err, ErrOutcomeUnknown)
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.ErrorContains(t, err, "standard output: no space left on device; ended: OUTCOME_UNKNOWN")
	require.Equal(t, 255, ExitStatus(err))

	f.then(exits(stdout(0, "lost"), stderrData(0, "x"), &protocol.Exit{Stdout: 4, Stderr: 2}))
	cmd = list(c)
	cmd.Stdout = &breaks{0, full()}
	err = cmd.Run()
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.EqualError(t, err, "standard output: no space left on device; the command has ended with status 0")
}

// A cancel that the end follows does not hide that output was lost.
func TestLostOutputOfACancelledCommand(t *testing.T) {
	f := newFixture(overTCP)
	c := f.dial(t)
	closed := make(chan struct{})
	stopped := make(chan struct{}, 8)
	f.onControl(func(q protocol.ControlRequest) protocol.ControlReply {
		stopped <- struct{}{}
		return &protocol.CancelReply{State: protocol.OperationRunning}
	})
	f.then(func(v *served) {
		v.send(acceptedFrame(), stdout(0, "lost"))
		for {
			got, err := v.Reader.Read()
			if _, ok := got.(*protocol.OutputClosed); ok || err != nil {
				break
			}
		}
		close(closed)
		select {
		case <-stopped:
		case <-time.After(20 * time.Second):
		}
		v.send(&protocol.Exit{Code: protocol.CodeCancelled, Stdout: 4})
		v.acked()
	})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cmd := c.Command(ctx, "github", "issue.list")
	cmd.Stdout = &breaks{0, full()}
	require.NoError(t, cmd.Start())
	<-closed
	cancel()
	err := cmd.Wait()
	require.Equal(t, 255, ExitStatus(err))
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "no space left on device; ended: CANCELLED")
}
